"""What is launched and compiled: plain data, checked without Triton."""

from __future__ import annotations

import ast
import gc
import math
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton import calls
from yolo_rocm.conv.triton.calls import Dot, strides
from yolo_rocm.conv.triton.tiles import DepthwiseBlock, SplitK, Tile, block
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton import launch
from yolo_rocm.engines.triton.available import NVIDIA
from yolo_rocm.engines.triton.call import Call

from ..tables import each_row
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
HELPERS = {"first_tap", "first_step", "next_step", "pixels_of_step"}  # of kernels; they are not launched


def described(problem: ConvProblem) -> dict[str, tuple[Call, list[str]]]:
    """Return every call there is, each with the tensors of its kernel."""
    x, y, w = (strides(s, False) for s in (problem.input_shape, problem.output_shape, problem.weight_shape))
    each = block(NVIDIA, False, False)
    four, three = ["src", "weight", "bias", "out"], ["src", "grad", "partial"]
    return {
        "forward": (calls.forward(problem, x, w, y, True, TILE, DOT), four),
        "grad_input": (calls.grad_input(problem, y, w, x, TILE, DOT), four),
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
@pytest.mark.parametrize("name", described(conv()))
def test_arguments_are_those_of_the_kernel_in_its_order(name, groups):
    call, tensors = described(conv(outs=48, stride=(2, 3), groups=groups))[name]
    parameters = KERNELS[call.module, call.kernel].args.args
    plain = [p.arg for p in parameters if p.annotation is None]
    assert plain[: len(tensors)] == tensors
    assert len(plain) == len(tensors) + len(call.numbers)
    assert [p.arg for p in parameters if p.annotation is not None] == list(call.constants)
    assert [p.annotation is None for p in parameters] == [True] * len(plain) + [False] * len(call.constants)
    assert all(type(number) is int for number in call.numbers)
    assert min(call.grid) >= 1


def test_every_kernel_is_called():
    jitted = {key for key, node in KERNELS.items() if node.name not in HELPERS}
    assert {(call.module, call.kernel) for call, _ in described(conv()).values()} == jitted


@each_row("name", [name for _, name in KERNELS if name not in HELPERS])
def test_every_kernel_has_its_formula_and_a_table_of_its_parameters(name):
    """The formula is in the docstring; the signature is the table: each line of it has a comment with words."""
    ((module, node),) = ((module, node) for (module, kernel), node in KERNELS.items() if kernel == name)
    assert (
        " = sum over " in (text := ast.get_docstring(node)) or "= bias" in text or "out[b, p, c] = src[b, c, p]" in text
    )
    path = Path(calls.__file__).parent / "kernels" / f"{module.rpartition('.')[2]}.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    signature = lines[node.lineno : node.body[0].lineno - 2]
    for line in signature:
        names, _, words = line.partition("#")
        assert names.strip().endswith(","), line
        assert len(words.split()) >= 2, line
    assert sum(line.partition("#")[0].count(",") for line in signature) == len(node.args.args)


def first_tap() -> Callable[[int, int, int, int], int]:
    """Return the kernels' own `first_tap` as a Python function: its integers are Python's."""
    node = KERNELS[calls.IMPLICIT_GEMM, "first_tap"]
    plain = ast.parse(ast.unparse(node)).body[0]
    plain.decorator_list = []
    for argument in plain.args.args:
        argument.annotation = None
    space: dict = {}
    exec(compile(ast.Module([plain], []), "kernels", "exec"), space)
    return space["first_tap"]


def test_each_phase_meets_the_taps_that_reach_it():
    """A tap reaches an input pixel if pixel + padding - tap * dilation is a multiple of the stride."""
    first = first_tap()
    for stride in range(1, 9):
        for dilation in range(1, 9):
            problem = conv((1, 1, 99, 99), 1, (7, 7), (stride, 3), (dilation, 2))
            known = calls.phase_constants(problem)
            assert list(known) == ["GCD_H", "GCD_W", "MODINV_H", "MODINV_W"]
            assert known["GCD_W"] == 1
            gcd, step = known["GCD_H"], stride // known["GCD_H"]
            for phase in range(stride):
                taps = range(first(phase, stride, gcd, known["MODINV_H"]), 7, step) if phase % gcd == 0 else ()
                assert list(taps) == [tap for tap in range(7) if (tap * dilation - phase) % stride == 0]
                # From tap to tap the output row changes by a whole number.
                assert all((b - a) * dilation == dilation // gcd * stride for a, b in pairwise(taps))


def test_large_tensors_are_told_from_others():
    shape = (70, 16, 1400, 1400)
    assert calls.needs_int64((shape, strides(shape, True)))
    assert not calls.needs_int64(((60, *shape[1:]), strides((60, *shape[1:]), True)))
    assert not calls.needs_int64(((1 << 20, 1 << 20), (0, 1)))  # expanded: every offset is small


@pytest.mark.parametrize("processors", [1, 8, 132, 1000])
@pytest.mark.parametrize("step", [16, 128])
def test_splits_cover_every_pixel_once(processors, step):
    for batch, size in ((1, 1), (1, 5), (2, 20), (64, 80)):
        pixels = batch * size * size
        for programs in (1, 9, 500):
            for least in (2, 8):
                split, splits = calls.split_k(pixels, programs, step, processors, SplitK(8, least))
                assert split % step == 0
                assert (splits - 1) * split < pixels <= splits * split
                assert splits * programs <= 8 * processors + programs
                assert splits == 1 or split >= least * step


@pytest.mark.parametrize("processors", [4, 64])
def test_a_depthwise_gradient_has_a_block_of_its_own(processors):
    problem = conv((64, 24, 40, 40), outs=24, groups=24)
    x, y = (strides(shape, False) for shape in (problem.input_shape, problem.output_shape))
    each = DepthwiseBlock(64, 8, 2, 128, 4, 1)
    call, splits = calls.depthwise_weight(problem, y, x, each, processors)
    assert (call.warps, call.constants["BLOCK_P"], call.constants["BLOCK_C"]) == (1, 128, 4)
    assert call.grid == (6, splits, 1)
    assert 0.9 * 16 * processors <= 6 * splits <= 16 * processors + 6


def test_the_sum_of_partial_sums_covers_the_weight():
    """It writes as many elements as the weight has."""
    for groups in (1, 4, 24):
        problem = conv(outs=48, groups=groups)
        call = calls.sum_partials(problem, 5, strides(problem.weight_shape, False))
        assert call.numbers[1] == math.prod(problem.weight_shape)
        assert call.grid[0] * call.constants["BLOCK_E"] >= call.numbers[1]
        assert call.constants["BLOCK_S"] >= 5


# Compiling ahead.


class Compiler:
    """A kernel that takes time to compile."""

    def __init__(self, call: Call, spills: int = 0) -> None:
        node = KERNELS[call.module, call.kernel]
        (options,) = (d.keywords for d in node.decorator_list if isinstance(d, ast.Call))
        fixed = ast.unparse(options[0].value)
        self.params = [SimpleNamespace(do_not_specialize=p.arg in fixed) for p in node.args.args]
        self.compiled: list[tuple] = []
        self._spills = spills

    def warmup(self, *arguments, grid, **options):
        """Compile."""
        time.sleep(0.05)
        self.compiled.append(arguments)
        return SimpleNamespace(n_spills=self._spills, _init_handles=lambda: None)


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    STATE.clear()

    def use(kernel: Compiler) -> Compiler:
        monkeypatch.setattr(launch, "kernel_of", lambda call: kernel)
        return kernel

    yield use
    STATE.clear()


def flat(channels: int) -> Call:
    problem = conv((2, 3, 9, 11), channels)
    x, y, w = (strides(s, False) for s in (problem.input_shape, problem.output_shape, problem.weight_shape))
    return calls.forward_flat(problem, x, w, y, False, TILE, DOT)


def test_threads_compile_each_kind_once(compiler):
    kernel = compiler(Compiler(calls.transpose((2, 24, 9, 11))))
    shapes = [(2, 24, 9, 11), (2, 24, 8, 16), (5, 32, 4, 4)]  # sizes that the kernel is not compiled for
    with ThreadPoolExecutor(8) as pool:
        ready = threading.Barrier(8)

        def work(number: int) -> None:
            ready.wait()
            launch.prepare(calls.transpose(shapes[number % 3]), (torch.float32,) * 2, "cpu")

        list(pool.map(work, range(8)))
    assert len(kernel.compiled) == 1
    launch.prepare(calls.transpose(shapes[0]), (torch.float16,) * 2, "cpu")
    assert len(kernel.compiled) == 2
    launch.prepare(calls.transpose((2, 8, 4, 4)), (torch.float16,) * 2, "cpu")  # another tile
    assert len(kernel.compiled) == 3


def test_numbers_that_triton_compiles_for_are_kinds_of_their_own(compiler):
    kernel = compiler(Compiler(flat(20)))
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

    class Refusing(Compiler):
        def warmup(self, *arguments, grid, **options):
            super().warmup(*arguments, grid=grid, **options)
            raise ValueError("no such instruction")

    kernel = compiler(Refusing(flat(20)))

    def measure():
        operand = torch.zeros(8)
        held.append(weakref.ref(operand))
        launch.prepare(flat(20), (torch.float32,) * 4, "cpu")

    held: list[weakref.ref] = []
    for _ in range(2):
        with pytest.raises(launch.CompilerError, match="ValueError: no such instruction"):
            measure()
    gc.collect()  # what only a traceback of pytest's has held
    assert [reference() for reference in held] == [None, None]
    assert len(kernel.compiled) == 1


def test_a_value_or_two_put_aside_are_no_spilling(compiler):
    kernel = compiler(Compiler(flat(20), spills=8))
    launch.prepare(flat(20), (torch.float32,) * 4, "cpu")
    assert len(kernel.compiled) == 1


def test_jobs_that_fail_do_not_stop_others_and_none_is_begun_too_late():
    done = []

    def fails():
        raise ValueError("a compiler's own error")

    launch.prepare_all([fails, lambda: done.append(1), fails, lambda: done.append(2)], 2, lambda: False)
    assert sorted(done) == [1, 2]
    launch.prepare_all([lambda: done.append(3)], 2, lambda: True)
    assert sorted(done) == [1, 2]
