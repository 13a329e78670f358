"""The triton engine without Triton: what is launched, what is tried, why it is not, and what becomes of bad kernels."""

from __future__ import annotations

import ast
import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.bench.layers import model_layers
from yolo_rocm.conv import plan as plan_module
from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME, Algorithm, triton_depthwise, triton_gemm
from yolo_rocm.conv.plan import Planner, check_engine
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton_engine import available, calls, launch, trust
from yolo_rocm.conv.triton_engine.calls import Dot, strides
from yolo_rocm.conv.triton_engine.tiles import FAMILIES, FMA, MFMA, NVIDIA, WMMA, Tile, block
from yolo_rocm.conv.tune import PASSES, Operands, time_candidates
from yolo_rocm.errors import ConfigError, EngineError

TRITON = [algorithm for algorithm in ALGORITHMS if algorithm.engine == "triton"]
TILE, DOT = Tile(32, 32, 16), Dot()


def conv(shape=(2, 24, 9, 11), outs=40, kernel=(3, 3), stride=(1, 1), dilation=(1, 1), groups=1, device="cuda:0"):
    weight = (outs, shape[1] // groups, *kernel)
    return ConvProblem(shape, weight, stride, (1, 1), dilation, (0, 0), groups, False, torch.float32, device, False)


# What is launched: names and order of arguments are those of the kernels, which `launch` hands over by position.


def kernel_functions() -> dict[tuple[str, str], ast.FunctionDef]:
    folder = Path(calls.__file__).parent
    return {
        (path.stem, node.name): node
        for path in folder.glob("*kernels.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }


KERNELS = kernel_functions()


def described(problem: ConvProblem) -> dict[str, tuple[calls.Call, list[str]]]:
    """Return every call there is, each with the tensors of its kernel."""
    x, y, w = (strides(s, False) for s in (problem.input_shape, problem.output_shape, problem.weight_shape))
    each = block(False, False)
    four, three = ["src", "weight", "bias", "out"], ["src", "grad", "partial"]
    return {
        "forward": (calls.forward(problem, x, w, y, True, TILE, DOT), four),
        "grad_input": (calls.grad_input(problem, y, w, x, TILE, DOT), four),
        "forward_flat": (calls.forward_flat(problem, x, w, y, False, TILE, DOT), four),
        "grad_weight": (calls.grad_weight(problem, y, x, TILE, DOT, 8, rows=False)[0], three),
        "grad_weight_rows": (calls.grad_weight(problem, y, x, TILE, DOT, 8, rows=True)[0], three),
        "sum_shares": (calls.sum_shares(problem, 5, w), ["partial", "out"]),
        "turn": (calls.turn(problem.input_shape), ["src", "out"]),
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
    jitted = {key for key, node in KERNELS.items() if not node.name.startswith("_")}
    assert {(call.module, call.kernel) for call, _ in described(conv()).values()} == jitted


def first_tap() -> Callable[[int, int, int, int], int]:
    """Return the kernels' own `_first_tap` as a Python function: its integers are Python's."""
    node = KERNELS["kernels", "_first_tap"]
    plain = ast.parse(ast.unparse(node)).body[0]
    plain.decorator_list = []
    for argument in plain.args.args:
        argument.annotation = None
    space: dict = {}
    exec(compile(ast.Module([plain], []), "kernels", "exec"), space)
    return space["_first_tap"]


def test_each_phase_meets_the_taps_that_reach_it():
    """A tap reaches an input pixel if pixel + padding - tap * dilation is a multiple of the stride."""
    first = first_tap()
    for stride in range(1, 9):
        for dilation in range(1, 9):
            problem = conv((1, 1, 99, 99), 1, (7, 7), (stride, 3), (dilation, 2))
            known = calls.phase_constants(problem)
            assert list(known) == ["COMMON_H", "COMMON_W", "INVERSE_H", "INVERSE_W"]
            assert known["COMMON_W"] == 1
            common, step = known["COMMON_H"], stride // known["COMMON_H"]
            for phase in range(stride):
                taps = range(first(phase, stride, common, known["INVERSE_H"]), 7, step) if phase % common == 0 else ()
                assert list(taps) == [tap for tap in range(7) if (tap * dilation - phase) % stride == 0]
                # From tap to tap the output row changes by a whole number.
                assert all((b - a) * dilation == dilation // common * stride for a, b in pairwise(taps))


def test_large_tensors_are_told_from_others():
    shape = (70, 16, 1400, 1400)
    assert calls.wide([(shape, strides(shape, True))])
    assert not calls.wide([((60, *shape[1:]), strides((60, *shape[1:]), True))])
    assert not calls.wide([((1 << 20, 1 << 20), (0, 1))])  # expanded: nothing lies far away


@pytest.mark.parametrize("processors", [1, 8, 132, 1000])
@pytest.mark.parametrize("step", [16, 128])
def test_shares_cover_every_pixel_once(processors, step):
    for batch, size in ((1, 1), (1, 5), (2, 20), (64, 80)):
        problem = conv((batch, 24, size, size))
        pixels = batch * size * size
        for programs in (1, 9, 500):
            share, shares = calls.shares_of(problem, programs, step, processors)
            assert share % step == 0
            assert (shares - 1) * share < pixels <= shares * share
            assert shares * programs <= 8 * processors + programs


# What is tried: few candidates, and some for every layer.


@pytest.fixture
def served(monkeypatch):
    """Triton serves every device; the family is what is asked for."""

    def by(family: str) -> None:
        monkeypatch.setattr(triton_gemm, "device_reason", lambda device: None)
        monkeypatch.setattr(triton_gemm, "family", lambda device: family)
        for module in (triton_gemm, triton_depthwise):
            monkeypatch.setattr(module, "processors", lambda device: 132)

    return by


def layers_of(model: str, dtype: torch.dtype, channels_last: bool) -> list[ConvProblem]:
    """Return the layers of a model at batch 64 and 640 pixels, from those at 64 pixels."""
    found = [layer.problem for layer in model_layers(model, 64, 64, dtype, "cuda:0", channels_last)]
    return [replace(p, input_shape=(*p.input_shape[:2], *(10 * s for s in p.input_size))) for p in found]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("model", ["yolov8n.yaml", "yolo11n.yaml"])
def test_few_candidates_for_every_layer_and_pass(served, model, family):
    served(family)
    counts = {}
    layers = layers_of(model, torch.float32, False)
    assert len(layers) > 20
    for dtype in (torch.float32, torch.float16):
        for problem in (replace(p, dtype=dtype, channels_last=last) for p in layers for last in (False, True)):
            serving = [a for a in TRITON if not a.not_supported_reasons(problem)]
            for which in PASSES:
                names = [a.name for a in serving if a.worth_measuring(problem, which)]
                assert names, (which, str(problem))
                counts[which, str(problem)] = names
                if problem.groups == problem.in_channels:
                    assert names == ["triton_depthwise"]
    assert not {key: names for key, names in counts.items() if len(names) > 7}


def test_nothing_much_larger_than_the_layer_is_tried(served):
    served(NVIDIA)
    narrow = conv(outs=16)
    assert not BY_NAME["triton_xl"].worth_measuring(narrow, "forward")
    assert not BY_NAME["triton_s"].worth_measuring(conv(outs=256), "forward")
    assert not BY_NAME["triton_rows_s"].worth_measuring(narrow, "forward")
    assert BY_NAME["triton_flat"].worth_measuring(conv((2, 3, 9, 11)), "forward")
    assert not BY_NAME["triton_flat"].worth_measuring(conv((2, 3, 9, 11)), "grad_weight")


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("family", [FMA, MFMA])
def test_the_workspace_is_what_the_gradient_of_a_weight_allocates(served, monkeypatch, family, channels_last):
    """Tensors without memory, kernels that are not launched: only what is allocated counts."""
    served(family)
    taken = []
    empty, empty_like = torch.empty, torch.empty_like
    methods = {name: getattr(torch.Tensor, name) for name in ("new_empty", "new_empty_strided")}

    def counting(make):
        def counted(*args, **kwargs):
            before = len(taken)
            made = make(*args, **kwargs)
            del taken[before:]  # without memory, one of the two may be made by the other
            taken.append(made.numel() * made.element_size())
            return made

        return counted

    def nothing(key, call, tensors):
        return None

    for module in (triton_gemm, triton_depthwise):
        monkeypatch.setattr(module, "launch", nothing)
    tried = set()
    for problem in layers_of("yolo11n.yaml", torch.float16, channels_last):
        layout = torch.channels_last if channels_last else torch.contiguous_format
        x, grad = (
            empty(shape, dtype=problem.dtype, device="meta", memory_format=layout)
            for shape in (problem.input_shape, problem.output_shape)
        )
        for algorithm in TRITON:
            if algorithm.not_supported_reasons(problem):
                continue
            triton_gemm._shares.clear()
            taken.clear()
            with monkeypatch.context() as patch:
                patch.setattr(torch, "empty", counting(empty))
                patch.setattr(torch, "empty_like", counting(empty_like))
                for name, make in methods.items():
                    patch.setattr(torch.Tensor, name, counting(make))
                result = algorithm.grad_weight(problem, grad, x)
            workspace = sum(taken) - result.numel() * result.element_size()
            assert 0 < workspace <= algorithm.workspace_bytes(problem), (algorithm.name, str(problem))
            tried.add(algorithm.name)
    triton_gemm._shares.clear()
    wanted = {a.name for a in TRITON if not (channels_last and a.name.endswith("_turned"))}
    assert tried == wanted - {"triton_transposed"}


# Why it is not: every reason by its name.


@pytest.fixture
def fresh():
    """Nothing is remembered of this machine, nor left behind of another one."""

    def clear():
        for value in vars(available).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
        trust.forget()

    clear()
    yield
    clear()


def refusal(problem: ConvProblem) -> str:
    with pytest.raises(EngineError) as caught:
        Planner("triton", remember=False).plan(problem)
    return str(caught.value)


def card(monkeypatch, *, gfx: str | None = None, capability: tuple[int, int] = (9, 0)) -> None:
    """Pretend that there is Triton, and a GPU of AMD or NVIDIA."""
    monkeypatch.setattr(available, "missing_reason", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", "6.2" if gfx else None)
    properties = SimpleNamespace(gcnArchName=f"{gfx}:sramecc+:xnack-", multi_processor_count=60)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)


def test_triton_is_not_installed(fresh, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    monkeypatch.setattr(available, "find_spec", lambda name: None)
    assert "triton_l: Triton is not installed\n" in refusal(conv())
    available.missing_reason.cache_clear()
    monkeypatch.setattr(available, "find_spec", lambda name: object())
    monkeypatch.setattr(available, "_DISTRIBUTIONS", ("nobody-wrote-this",))
    assert available.missing_reason() == "Triton is not installed"


def test_triton_is_too_old(fresh, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    monkeypatch.setattr(available, "find_spec", lambda name: object())
    monkeypatch.setattr(available, "triton_version", lambda: (2, 1))
    assert "Triton 2.1 is older than 3.0" in refusal(conv())


def test_torch_is_too_old(fresh, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "1.13.1+rocm5.2")
    monkeypatch.setattr(available, "find_spec", lambda name: pytest.fail("looked for Triton"))
    assert "torch 1.13.1+rocm5.2 is older than 2.0" in refusal(conv())


def test_there_is_no_gpu(fresh, monkeypatch):
    monkeypatch.setattr(available, "missing_reason", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "there is no GPU" in refusal(conv())
    assert "Triton has no kernels for cpu" in refusal(conv(device="cpu"))


def test_cards_that_triton_does_not_know(fresh, monkeypatch):
    card(monkeypatch, gfx="gfx906")
    assert "Triton does not compile for gfx906" in refusal(conv())
    card(monkeypatch, capability=(6, 1))
    assert "Triton does not compile for compute capability (6, 1)" in refusal(conv(device="cuda:1"))


@pytest.mark.parametrize(
    ("gfx", "family"),
    [
        ("gfx1010", FMA), ("gfx1012", FMA), ("gfx1030", FMA), ("gfx1036", FMA), ("gfx1100", WMMA), ("gfx1151", WMMA),
        ("gfx1200", WMMA), ("gfx1201", WMMA), ("gfx908", MFMA), ("gfx90a", MFMA), ("gfx942", MFMA), ("gfx950", MFMA),
        (None, NVIDIA),
    ],
)  # fmt: skip
def test_cards_that_triton_knows(fresh, monkeypatch, gfx, family):
    card(monkeypatch, gfx=gfx)
    assert available.device_reason("cuda:0") is None
    assert available.family("cuda:0") == family
    assert available.processors("cuda:0") == 60
    assert triton_gemm.dot(conv()).upcast == (family == FMA)


@pytest.mark.parametrize("gfx", ["gfx803", "gfx900", "gfx906", "gfx1100x", "unknown", ""])
def test_no_family_for_the_others(gfx):
    assert available.amd_family(gfx) is None


def test_what_the_kernels_do_not_serve(fresh, monkeypatch):
    card(monkeypatch)
    assert "dtype torch.float64 is not float32, float16 or bfloat16" in refusal(replace(conv(), dtype=torch.float64))
    solid = ConvProblem(
        (1, 4, 5, 5, 5), (4, 4, 3, 3, 3), *[(1,) * 3] * 3, (0,) * 3, 1, False, torch.float32, "cuda:0", False
    )
    text = refusal(solid)
    assert "triton_l: 3 spatial dimensions, not 2" in text
    assert "triton_transposed: not transposed" in text
    assert "triton_transposed: 3 spatial dimensions, not 2" in refusal(replace(solid, transposed=True))
    assert "2**31 or more" in refusal(conv((1, 8, 20000, 20000)))
    many = conv((1, 65536, 2, 2), 65536, groups=65536)
    assert "65536 groups are more than a launch takes" in refusal(many)


# Several engines.


def test_engines_may_be_joined(fresh, monkeypatch):
    assert check_engine("gemm+triton") == ["gemm", "triton"]
    assert check_engine("triton+gemm+triton") == ["triton", "gemm"]
    problem = conv(device="cpu")
    planner = Planner("gemm+triton", remember=False)
    assert {a.engine for a in planner.candidates(problem)} == {"gemm"}  # nothing of Triton serves a CPU
    assert planner.plan(problem).engine == "gemm"
    monkeypatch.setattr(triton_gemm, "device_reason", lambda device: None)
    monkeypatch.setattr(trust, "check", lambda *args: None)
    assert {a.engine for a in Planner("gemm+triton", remember=False).candidates(problem)} == {"gemm", "triton"}
    assert {a.engine for a in Planner("triton", remember=False).candidates(problem)} == {"triton"}
    assert {a.engine for a in Planner("auto", remember=False).candidates(problem)} == {"gemm", "triton", "aten"}


@pytest.mark.parametrize("engine", ["gemm+trition", "gemm+", "+", "auto+gemm", "gemm,triton"])
def test_engines_that_cannot_be_joined(engine):
    with pytest.raises(ConfigError, match=r"unknown engine .*Allowed: auto, vendor, aten, gemm, triton"):
        Planner(engine)


# What becomes of bad kernels.


class Fake(Algorithm):
    """An algorithm of the triton engine that is right, but for one pass."""

    name = "fake"
    engine = "triton"

    def __init__(self, which: str = "", bad: Callable[[torch.Tensor], torch.Tensor] = lambda result: result) -> None:
        self._which, self._bad = which, bad
        self.ran: list[str] = []

    def not_supported_reasons(self, problem):
        """Serve everything until struck out."""
        why = trust.struck_out(problem.device, "fake", problem.dtype)
        return [] if why is None else [why]

    def check(self, problem):
        """Look once."""
        trust.check(self, "fake", problem)

    def workspace_bytes(self, problem):
        """Take nothing."""
        return 0

    def forward(self, problem, x, weight, bias):
        """Compute the output."""
        return self._of("forward", problem, x, weight, bias)

    def grad_input(self, problem, grad, weight):
        """Compute the gradient of the input."""
        return self._of("grad_input", problem, grad, weight)

    def grad_weight(self, problem, grad, x):
        """Compute the gradient of the weight."""
        return self._of("grad_weight", problem, grad, x)

    def _of(self, which, *operands):
        self.ran.append(which)
        result = getattr(BY_NAME["windows"], which)(*operands)
        return self._bad(result) if which == self._which else result


def raises(error: Exception) -> Callable[[torch.Tensor], torch.Tensor]:
    def bad(result):
        raise error

    return bad


BAD = {
    "raises": (raises(ValueError("no such instruction\nat line 3")), "fails with ValueError: no such instruction"),
    "says nothing": (raises(AssertionError()), "fails with AssertionError:"),
    "wrong": (lambda result: result * 1.01, "is wrong, its relative error is 1.0e-02"),
    "not a number": (lambda result: result / 0 * 0, "is wrong, its relative error is nan"),
    "one element": (lambda result: result.flatten().index_fill(0, torch.tensor([7]), 9.0).view(result.shape), "wrong"),
}


@pytest.fixture
def trusting(fresh, monkeypatch, caplog):
    """Kernels are checked, as they are where they are compiled; what is logged is kept."""
    monkeypatch.setattr(trust, "interpreted", lambda: False)
    caplog.set_level(logging.WARNING, logger="yolo_rocm")
    return caplog


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("how", BAD)
def test_a_bad_kernel_is_struck_out_with_one_line(trusting, monkeypatch, how, which):
    bad, words = BAD[how]
    fake = Fake(which, bad)
    monkeypatch.setattr(plan_module, "ALGORITHMS", (fake, BY_NAME["unfold"]))
    planner = Planner("triton+gemm", remember=False)
    problem = conv(device="cpu")
    for other in (problem, problem, replace(problem, stride=(2, 2)), conv(outs=8, device="cpu")):
        assert [a.name for a in planner.checked_candidates(other)] == ["unfold"]
        assert planner.plan(other).engine == "gemm"
    assert len(fake.ran) == PASSES.index(which) + 1  # once, on a small problem, and never again
    (record,) = trusting.records
    assert record.getMessage().startswith(f"Triton kernel 'fake' is left out on cpu for torch.float32: {which} ")
    assert words in record.getMessage()
    assert "\n" not in record.getMessage()
    monkeypatch.setattr(plan_module, "ALGORITHMS", (fake,))
    assert f"fake: {which} " in refusal(problem)


def test_a_good_kernel_is_checked_once_for_each_dtype(trusting, monkeypatch):
    fake = Fake()
    monkeypatch.setattr(plan_module, "ALGORITHMS", (fake, BY_NAME["unfold"]))
    planner, problem = Planner("triton+gemm", remember=False), conv(device="cpu")
    for _ in range(3):
        assert planner.checked_candidates(problem)[0] is fake
    assert fake.ran == list(PASSES)
    assert planner.checked_candidates(replace(problem, dtype=torch.bfloat16))[0] is fake
    assert fake.ran == list(PASSES) * 2
    assert not trusting.records


@pytest.mark.parametrize("algorithm", TRITON, ids=lambda a: a.name)
def test_the_small_problem_is_one_that_the_algorithm_serves(fresh, monkeypatch, algorithm):
    """Otherwise a kernel would be struck out for what it never serves."""
    card(monkeypatch)
    seen = []
    monkeypatch.setattr(trust, "interpreted", lambda: False)
    monkeypatch.setattr(trust, "_wrong", lambda checked, small: seen.append((checked, small)))
    problems = [
        conv(),
        conv((2, 24, 9, 11), 24, groups=24),
        conv((2, 3, 9, 11)),
        replace(conv(outs=24), transposed=True),
    ]
    for problem in problems:
        if not algorithm.not_supported_reasons(problem):
            algorithm.check(problem)
    ((checked, small),) = seen
    assert checked.not_supported_reasons(small) == []
    assert small.problems() == []


def test_wrong_numbers_of_one_shape_are_left_out_of_the_race(trusting):
    problem = conv(device="cpu")
    rows = time_candidates(
        problem, "forward", [Fake("forward", lambda y: y * 1.1), BY_NAME["unfold"]], Operands.of(problem), 1 << 40
    )
    assert [row.algorithm for row in rows] == ["unfold"]
    (record,) = trusting.records
    assert record.getMessage() == f"fake is left out for {problem}, forward: it gives wrong numbers"
    trusting.clear()
    rows = time_candidates(problem, "forward", [Fake(), BY_NAME["unfold"]], Operands.of(problem), 1 << 40)
    assert {row.algorithm for row in rows} == {"fake", "unfold"}
    assert not trusting.records


def test_a_tile_that_spills_is_not_timed(trusting, monkeypatch):
    def spills(problem, which):
        raise launch.Spills("12 registers")

    fake, problem = Fake(), conv(device="cpu")
    monkeypatch.setattr(fake, "prepare", spills)
    rows = time_candidates(problem, "forward", [fake, BY_NAME["unfold"]], Operands.of(problem), 1 << 40)
    assert [row.algorithm for row in rows] == ["unfold"]
    assert fake.ran == []


# Compiling ahead.


class Compiler:
    """A kernel that takes time to compile."""

    def __init__(self, call: calls.Call, spills: int = 0) -> None:
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
    launch.forget()

    def use(kernel: Compiler) -> Compiler:
        monkeypatch.setattr(launch, "kernel_of", lambda call: kernel)
        return kernel

    yield use
    launch.forget()


def flat(channels: int) -> calls.Call:
    problem = conv((2, 3, 9, 11), channels)
    x, y, w = (strides(s, False) for s in (problem.input_shape, problem.output_shape, problem.weight_shape))
    return calls.forward_flat(problem, x, w, y, False, TILE, DOT)


def test_threads_compile_each_kind_once(compiler):
    kernel = compiler(Compiler(calls.turn((2, 24, 9, 11))))
    shapes = [(2, 24, 9, 11), (2, 24, 8, 16), (5, 32, 4, 4)]  # sizes that the kernel is not compiled for
    with ThreadPoolExecutor(8) as pool:
        ready = threading.Barrier(8)

        def work(number: int) -> None:
            ready.wait()
            launch.prepare(calls.turn(shapes[number % 3]), (torch.float32,) * 2)

        list(pool.map(work, range(8)))
    assert len(kernel.compiled) == 1
    launch.prepare(calls.turn(shapes[0]), (torch.float16,) * 2)
    assert len(kernel.compiled) == 2
    launch.prepare(calls.turn((2, 8, 4, 4)), (torch.float16,) * 2)  # another tile
    assert len(kernel.compiled) == 3


def test_numbers_that_triton_compiles_for_are_kinds_of_their_own(compiler):
    kernel = compiler(Compiler(flat(20)))
    for channels, kinds in ((20, 1), (21, 1), (16, 2), (32, 2), (1, 3)):
        launch.prepare(flat(channels), (torch.float32,) * 4)
        assert len(kernel.compiled) == kinds, channels


def test_a_kernel_that_spills_says_so_every_time(compiler):
    kernel = compiler(Compiler(flat(20), spills=7))
    for _ in range(2):
        with pytest.raises(launch.Spills, match="flat_gemm spills 7 registers"):
            launch.prepare(flat(20), (torch.float32,) * 4)
    assert len(kernel.compiled) == 1


def test_jobs_that_fail_do_not_stop_others_and_none_is_begun_too_late():
    done = []

    def fails():
        raise ValueError("a compiler's own error")

    launch.prepare_all([fails, lambda: done.append(1), fails, lambda: done.append(2)], 2, lambda: False)
    assert sorted(done) == [1, 2]
    launch.prepare_all([lambda: done.append(3)], 2, lambda: True)
    assert sorted(done) == [1, 2]


def test_offsets_of_shares_hold_all_taps():
    """The sum of the shares lays out as many elements as the weight has."""
    for groups in (1, 4, 24):
        problem = conv(outs=48, groups=groups)
        call = calls.sum_shares(problem, 5, strides(problem.weight_shape, False))
        assert call.numbers[1] == math.prod(problem.weight_shape)
        assert call.grid[0] * call.constants["BE"] >= call.numbers[1]
        assert call.constants["BS"] >= 5
