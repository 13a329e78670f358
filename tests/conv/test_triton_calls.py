"""What is launched, compiled and launched again, checked without Triton."""

from __future__ import annotations

import ast
import gc
import logging
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
from yolo_rocm.conv.triton.tiles import Tile, block
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton import direct, launch
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


# The launch that skips Triton's own: taken where it was proven to do the same, and given up where it fails.

COPY = calls.transpose((2, 24, 9, 11))


class Kernel:
    """Writes one more than its source, launched by Triton or directly; `bad` is what goes wrong in the latter.

    Addresses mean nothing here: the tensors are those of the launch.
    """

    def __init__(self, bad=None) -> None:
        self.by_triton, self.direct, self.bad = 0, 0, bad
        self.tensors: tuple[torch.Tensor, ...] = ()

    def launched(self, *tensors):
        """Launch on tensors, as a pass does."""
        self.tensors = tensors
        launch.launch("key", lambda: COPY, tensors)
        return tensors[-1].clone()

    def __getitem__(self, grid):
        """Return what Triton launches by."""

        def by_triton(*arguments, **options):
            self.by_triton += 1
            self._write()
            return self.compiled()

        return by_triton

    def compiled(self):
        """Return what Triton has compiled."""
        return SimpleNamespace(run=self._run, function=1, packed_metadata=2)

    def _run(self, *arguments):
        self.direct += 1
        if self.bad is not None:
            self.bad(self)
        else:
            self._write()

    def _write(self) -> None:
        source, result = self.tensors
        result.copy_(source + 1)


@pytest.fixture
def use(monkeypatch, caplog):
    """Launch a kernel with a version of Triton, on a pretended device."""
    caplog.set_level(logging.WARNING, logger="yolo_rocm")
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(direct, "current_device", lambda: -1)
    monkeypatch.setattr(direct, "current_stream", lambda number: 0)

    def using(kernel: Kernel, version=(3, 6)) -> Kernel:
        monkeypatch.setattr(direct, "triton_version", lambda: version)
        monkeypatch.setattr(launch, "kernel_of", lambda call: kernel)
        return kernel

    with STATE.replaced():
        yield using


def tensors(dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(32.0).to(dtype), torch.zeros(32, dtype=dtype)


@pytest.mark.parametrize(
    ("version", "dtype"), [((3, 3), torch.float32), ((3, 6), torch.float16), ((3, 9), torch.bfloat16)], ids=str
)
def test_it_is_compared_once_and_taken_from_then_on(use, caplog, version, dtype):
    kernel, (x, y) = use(Kernel(), version), tensors(dtype)
    assert torch.equal(kernel.launched(x, y), x + 1)
    assert (kernel.by_triton, kernel.direct) == (1, 1)  # the second is the comparison
    for _ in range(3):
        y.zero_()
        assert torch.equal(kernel.launched(x, y), x + 1)
    assert (kernel.by_triton, kernel.direct) == (1, 4)
    assert not direct._given_up
    launch.launch("another problem", lambda: COPY, (x, y))
    assert (kernel.by_triton, kernel.direct) == (2, 4)  # the same kernel: not compared again
    assert launch.repeating("another problem") is not None
    assert not caplog.records


def takes_other_arguments(kernel: Kernel) -> None:
    raise TypeError("function takes exactly 12 arguments (60 given)")


def does_nothing(kernel: Kernel) -> None:
    return None


def writes_something_else(kernel: Kernel) -> None:
    kernel.tensors[-1].fill_(3.0)


BAD = {
    "arguments": (takes_other_arguments, "TypeError: function takes exactly 12 arguments"),
    "nothing": (does_nothing, "other numbers than Triton's own launch"),
    "numbers": (writes_something_else, "other numbers than Triton's own launch"),
}


@pytest.mark.parametrize("how", BAD)
def test_one_that_does_not_do_the_same_is_given_up_with_one_line(use, caplog, how):
    bad, words = BAD[how]
    kernel, (x, y) = use(Kernel(bad)), tensors()
    for _ in range(4):
        y.zero_()
        assert torch.equal(kernel.launched(x, y), x + 1)
    assert (kernel.by_triton, kernel.direct) == (4, 1)
    (record,) = caplog.records
    assert words in record.getMessage()
    assert "Triton 3.6's own" in record.getMessage()
    assert words in "".join(direct._given_up)
    assert launch.repeating("key") is None


@pytest.mark.parametrize(
    ("version", "missing"), [((3, 2), None), ((3, 10), None), ((3, 6), "run"), ((3, 6), "packed_metadata")], ids=str
)
def test_what_nobody_has_read_is_launched_by_triton(use, caplog, monkeypatch, version, missing):
    """Versions, which need no word, and kernels that are not what they were."""
    kernel, (x, y) = use(Kernel(), version), tensors()
    whole = kernel.compiled()
    if missing is not None:
        delattr(whole, missing)
    monkeypatch.setattr(kernel, "compiled", lambda: whole)
    for _ in range(3):
        assert torch.equal(kernel.launched(x, y), x + 1)
    assert (kernel.by_triton, kernel.direct) == (3, 0)
    assert [missing in record.getMessage() for record in caplog.records] == [True] * (missing is not None)


def test_one_that_fails_later_is_given_up_too(use, caplog):
    kernel, (x, y) = use(Kernel()), tensors()
    kernel.launched(x, y)
    kernel.launched(x, y)
    again = launch.repeating("key")
    assert not again(3, 0, 16)  # another device than torch's
    kernel.bad = takes_other_arguments
    for _ in range(3):
        y.zero_()
        assert torch.equal(kernel.launched(x, y), x + 1)
    assert (kernel.by_triton, kernel.direct) == (4, 3)
    assert not again(-1, 0, 16)  # who has kept it is told as well
    assert kernel.direct == 3
    assert len(caplog.records) == 1
