"""What is launched and compiled: plain data, checked without Triton."""

from __future__ import annotations

import ast
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton import calls
from yolo_rocm.conv.triton.calls import Dot, strides
from yolo_rocm.conv.triton.tiles import SplitK, Tile, block
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton import launch
from yolo_rocm.engines.triton.available import NVIDIA
from yolo_rocm.engines.triton.call import Call

from .problems import made_problem as conv

TILE, DOT = Tile(32, 32, 16), Dot()


# What is launched: names and order of arguments are those of the kernels, which `launch` hands over by position.


def kernel_functions() -> dict[tuple[str, str], ast.FunctionDef]:
    folder = Path(calls.__file__).parent / "kernels"
    return {
        (f"yolo_rocm.conv.triton.kernels.{path.stem}", node.name): node
        for path in map(folder.joinpath, ("implicit_gemm.py", "grad_weight.py", "depthwise.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }


KERNELS = kernel_functions()
HELPERS = {"first_tap", "along_axis", "first_step", "next_step", "pixels_of_step"}  # of kernels; not launched


def described(problem: ConvProblem) -> dict[str, tuple[Call, list[str]]]:
    """Return every call there is, each with the tensors of its kernel."""
    x, y, w = (strides(s, False) for s in (problem.input_shape, problem.output_shape, problem.weight_shape))
    each = block(NVIDIA, False, False)
    four, three = ["src", "weight", "bias", "out"], ["src", "grad", "partial"]
    return {
        "forward": (calls.gather_gemm(problem, x, w, y, True, TILE, DOT, back=False), four),
        "grad_input": (calls.gather_gemm(problem, y, w, x, False, TILE, DOT, back=True), four),
        "forward_flat": (calls.forward_flat(problem, x, w, y, False, TILE, DOT), four),
        "grad_weight": (calls.grad_weight(problem, y, x, TILE, DOT, 8, rows=False)[0], three),
        "grad_weight_rows": (calls.grad_weight(problem, y, x, TILE, DOT, 8, rows=True)[0], three),
        "sum_partials": (calls.sum_partials(problem, 5, w), ["partial", "out"]),
        "transpose": (calls.transpose(problem.input_shape), ["src", "out"]),
        "depthwise": (calls.depthwise(problem, x, w, y, True, each, back=False), four),
        "depthwise_back": (calls.depthwise(problem, y, w, x, False, each, back=True), four),
        "depthwise_weight": (calls.depthwise_weight(problem, y, x, each, 8)[0], three),
    }


@pytest.mark.parametrize("groups", [1, 24])
def test_arguments_are_those_of_the_kernel_in_its_order(groups):
    launched = described(conv(outs=48, stride=(2, 3), groups=groups))
    for call, tensors in launched.values():
        parameters = KERNELS[call.module, call.kernel].args.args
        plain = [p.arg for p in parameters if p.annotation is None]
        assert plain[: len(tensors)] == tensors
        assert len(plain) == len(tensors) + len(call.numbers)
        assert [p.arg for p in parameters if p.annotation is not None] == list(call.constants)
        assert [p.annotation is None for p in parameters] == [True] * len(plain) + [False] * len(call.constants)
        assert all(type(number) is int for number in call.numbers)
    assert {(call.module, call.kernel) for call, _ in launched.values()} == {k for k in KERNELS if k[1] not in HELPERS}


def test_large_tensors_are_told_from_others():
    shape = (70, 16, 1400, 1400)
    assert calls.needs_int64((shape, strides(shape, True)))
    assert not calls.needs_int64(((60, *shape[1:]), strides((60, *shape[1:]), True)))
    assert not calls.needs_int64(((1 << 20, 1 << 20), (0, 1)))  # expanded: every offset is small


@pytest.mark.parametrize("processors", [1, 8, 132, 1000])
def test_splits_cover_every_pixel_once(processors):
    for batch, size, step in ((1, 1, 16), (1, 5, 128), (2, 20, 16), (64, 80, 128)):
        pixels = batch * size * size
        for programs in (1, 9, 500):
            for least in (2, 8):
                split, splits = calls.split_k(pixels, programs, step, processors, SplitK(8, least))
                assert split % step == 0
                assert (splits - 1) * split < pixels <= splits * split
                assert splits * programs <= 8 * processors + programs
                assert splits == 1 or split >= least * step


# Compiling ahead.


class Compiler:
    """A kernel that takes time to compile."""

    def __init__(self, call: Call, spills: int = 0, error: Exception | None = None) -> None:
        node = KERNELS[call.module, call.kernel]
        (options,) = (d.keywords for d in node.decorator_list if isinstance(d, ast.Call))
        fixed = ast.unparse(options[0].value)
        self.params = [SimpleNamespace(do_not_specialize=p.arg in fixed) for p in node.args.args]
        self.compiled: list[tuple] = []
        self._spills, self._error = spills, error

    def warmup(self, *arguments, grid, **options):
        """Compile."""
        time.sleep(0.02)
        self.compiled.append(arguments)
        if self._error is not None:
            raise self._error
        return SimpleNamespace(n_spills=self._spills, _init_handles=lambda: None)


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)

    def use(kernel: Compiler) -> Compiler:
        monkeypatch.setattr(launch, "kernel_of", lambda call: kernel)
        return kernel

    with STATE.replaced():
        yield use


def flat(channels: int) -> Call:
    return described(conv((2, 3, 9, 11), channels))["forward_flat"][0]


def test_threads_compile_each_kind_once(compiler):
    kernel = compiler(Compiler(calls.transpose((2, 24, 9, 11))))
    shapes = [(2, 24, 9, 11), (2, 24, 8, 16), (5, 32, 4, 4)]  # sizes that the kernel is not compiled for
    ready = threading.Barrier(8)

    def work(number: int) -> None:
        ready.wait()
        launch.prepare(calls.transpose(shapes[number % 3]), (torch.float32,) * 2, "cpu")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(kernel.compiled) == 1
    launch.prepare(calls.transpose(shapes[0]), (torch.float16,) * 2, "cpu")
    launch.prepare(calls.transpose((2, 8, 4, 4)), (torch.float16,) * 2, "cpu")  # another tile
    assert len(kernel.compiled) == 3


def test_numbers_that_triton_compiles_for_are_kinds_of_their_own(compiler):
    kernel = compiler(Compiler(flat(20), spills=8))  # a value or two put aside are no spilling
    for channels, kinds in ((20, 1), (21, 1), (16, 2), (32, 2), (1, 3)):
        launch.prepare(flat(channels), (torch.float32,) * 4, "cpu")
        assert len(kernel.compiled) == kinds, channels


def test_a_kernel_that_spills_says_so_every_time(compiler):
    kernel = compiler(Compiler(flat(20), spills=9))
    for _ in range(2):
        with pytest.raises(launch.Spills, match="flat_gemm spills 9 registers"):
            launch.prepare(flat(20), (torch.float32,) * 4, "cpu")
    assert len(kernel.compiled) == 1


def test_a_failure_is_remembered_without_what_it_happened_to(compiler):
    """An exception holds its frames: here those of the tuner, with the tensors it was timing."""
    kernel = compiler(Compiler(flat(20), error=ValueError("no such instruction")))

    def measure():
        operand = torch.zeros(8)
        held.append(weakref.ref(operand))
        launch.prepare(flat(20), (torch.float32,) * 4, "cpu")

    held: list[weakref.ref] = []
    for _ in range(2):
        with pytest.raises(launch.CompilerError, match="ValueError: no such instruction"):
            measure()
    kernel._error = None  # this test's own, which holds frames as well
    gc.collect()  # what only a traceback of pytest's has held
    assert [reference() for reference in held] == [None, None]
    assert len(kernel.compiled) == 1


def test_jobs_that_fail_do_not_stop_others_and_none_is_begun_too_late():
    done = []

    def fails():
        raise ValueError("a compiler's own error")

    launch.prepare_all([fails, lambda: done.append(1), fails, lambda: done.append(2)], 2, lambda: False)
    assert sorted(done) == [1, 2]
    launch.prepare_all([lambda: done.append(3)], 2, lambda: True)
    assert sorted(done) == [1, 2]
