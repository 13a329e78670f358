"""The triton engine without Triton: what is tried, every reason why it is not, and what becomes of bad kernels."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, product

import pytest
import torch

from yolo_rocm.bench.layers import model_layers
from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME, INFERENCE_ALGORITHMS
from yolo_rocm.conv.gemm.windows import Windows
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, Operands, Planner
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton import common as triton_common
from yolo_rocm.conv.triton import depthwise as triton_depthwise
from yolo_rocm.conv.triton import gemm as triton_gemm
from yolo_rocm.conv.triton.tiles import fits
from yolo_rocm.engines import devices
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton import available
from yolo_rocm.engines.triton.available import FAMILIES, FMA, MFMA, NVIDIA, WMMA
from yolo_rocm.engines.trust import checks
from yolo_rocm.engines.trust.record import record_of
from yolo_rocm.engines.tuning import time_candidates

from ..tables import each_row
from .problems import made_problem as conv
from .triton_machines import card, refusal

TRITON = [algorithm for algorithm in ALGORITHMS if algorithm.engine == "triton"]


# What is tried: few candidates, and some for every layer.


@pytest.fixture
def served(monkeypatch):
    """Triton serves every device; the family is what is asked for."""

    def by(family: str) -> None:
        monkeypatch.setattr(triton_common, "device_reason", lambda device: None)
        for module in (triton_common, triton_gemm):
            monkeypatch.setattr(module, "family", lambda device: family)
        for module in (triton_gemm, triton_depthwise):
            monkeypatch.setattr(module, "processors", lambda device: 132)

    return by


@each_row("family, last", list(product(FAMILIES, (False, True))))
def test_few_candidates_for_every_layer_and_pass(served, family, last):
    served(family)
    layers = model_layers("yolo11n.yaml", 64, 64, torch.float32, "cuda:0", last)
    small = (layer.problem for layer in layers)
    problems = [replace(p, input_shape=(*p.input_shape[:2], *(10 * size for size in p.input_size))) for p in small]
    assert len(problems) > 20
    for dtype, problem, which in product((torch.float32, torch.float16), problems, PASSES):
        problem = replace(problem, dtype=dtype)
        serving = [a for a in TRITON if not a.not_supported_reasons(problem)]
        names = [a.name for a in serving if a.worth_measuring(problem, which)]
        assert 0 < len(names) <= 7, (which, str(problem))
        if problem.groups == problem.in_channels:
            assert names == ["triton_depthwise"]


def test_tiles_of_inference_are_no_deeper_than_the_layer_has_channels(served):
    served(NVIDIA)
    (deep,) = (a for a in INFERENCE_ALGORITHMS if a.name == "triton_128x128")
    for channels, worth in ((24, False), (64, True)):
        problem = replace(conv((2, channels, 9, 11), outs=128), dtype=torch.float16)
        assert deep.worth_measuring(problem, "forward") == worth


def test_tiles_that_are_mostly_padding_or_far_too_narrow_do_not_fit():
    assert [size for size in (16, 32, 64, 128) if fits(size, 16)] == [16]
    assert [size for size in (16, 32, 64, 128) if fits(size, 64)] == [16, 32, 64]
    assert [size for size in (16, 32, 64, 128) if fits(size, 65)] == [32, 64, 128]


# Why it is not: every reason by its name.


def test_there_is_no_triton(fresh, monkeypatch):
    for torch_version, triton, why in (
        ("2.10.0", None, "Triton is not installed"),
        ("2.10.0", (2, 1), "Triton 2.1 is older than 3.0"),
        ("1.13.1+rocm5.2", (3, 6), "torch 1.13.1+rocm5.2 is older than 2.0"),
    ):
        STATE.clear()
        monkeypatch.setattr(torch, "__version__", torch_version)
        monkeypatch.setattr(available, "find_spec", lambda name, triton=triton: triton)
        monkeypatch.setattr(available, "triton_version", lambda triton=triton: triton)
        assert f"triton_l: {why}" in refusal(conv())


def test_there_is_no_card_for_it(fresh, monkeypatch):
    monkeypatch.setattr(available, "missing_reason", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "there is no GPU" in refusal(conv())
    assert "Triton has no kernels for cpu" in refusal(conv(device="cpu"))
    card(monkeypatch, gfx="gfx906")
    STATE.clear()
    assert "Triton does not compile for gfx906" in refusal(conv())
    card(monkeypatch, capability=(6, 1))
    assert "Triton does not compile for compute capability (6, 1)" in refusal(conv(device="cuda:1"))


CARDS = {
    FMA: ("gfx1010", "gfx1012", "gfx1030", "gfx1036"),
    WMMA: ("gfx1100", "gfx1151", "gfx1200", "gfx1201"),
    MFMA: ("gfx908", "gfx90a", "gfx942", "gfx950"),
    NVIDIA: (None,),
}


def test_cards_that_triton_knows(fresh, monkeypatch):
    for family, gfx in ((family, gfx) for family, cards in CARDS.items() for gfx in cards):
        STATE.clear()
        card(monkeypatch, gfx=gfx)
        assert available.device_reason("cuda:0") is None
        assert (available.family("cuda:0"), devices.processors("cuda:0")) == (family, 60), gfx
        assert triton_common.dot(conv()).upcast == (family == FMA)
    others = ("gfx803", "gfx900", "gfx906", "gfx1100x", "unknown", "")
    assert {available.amd_family(gfx) for gfx in others} == {None}


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


# What becomes of bad kernels.


class Fake(Windows):
    """An algorithm of the triton engine that is right, but for one pass."""

    name = "fake"
    engine = "triton"
    kernel = "fake"

    def __init__(self, which: str = "", bad: Callable[[torch.Tensor], torch.Tensor] = lambda result: result) -> None:
        self._which, self._bad = which, bad
        self.ran: list[str] = []

    def not_supported_reasons(self, problem):
        """Serve everything until struck out."""
        why = record_of(problem.device).quarantine_reason("conv", "fake", problem.dtype)
        return [] if why is None else [why]

    def forward(self, *operands):
        """Compute the output."""
        return self._of("forward", super().forward(*operands))

    def grad_input(self, *operands):
        """Compute the gradient of the input."""
        return self._of("grad_input", super().grad_input(*operands))

    def grad_weight(self, *operands):
        """Compute the gradient of the weight."""
        return self._of("grad_weight", super().grad_weight(*operands))

    def _of(self, which, result):
        self.ran.append(which)
        return self._bad(result) if which == self._which else result


def raises(error: Exception) -> Callable[..., torch.Tensor]:
    def bad(*given):
        raise error

    return bad


BAD = {
    "raises": (raises(ValueError("no such instruction\nat line 3")), "fails with ValueError: no such instruction"),
    "says nothing": (raises(AssertionError()), "fails with AssertionError"),
    "wrong": (lambda result: result * 1.01, "is wrong, its relative error is 1.0e-02"),
    "not a number": (lambda result: result / 0 * 0, "is wrong, its relative error is nan"),
    "one element": (lambda result: result.flatten().index_fill(0, torch.tensor([7]), 9.0).view(result.shape), "wrong"),
}


@pytest.fixture
def trusting(fresh, monkeypatch, caplog):
    """Kernels are checked, as they are where they are compiled; what is logged is kept."""
    monkeypatch.setattr(checks, "interpreted", lambda: False)
    caplog.set_level(logging.WARNING, logger="yolo_rocm")
    return caplog


@pytest.mark.parametrize(("how", "which"), [*zip(BAD, cycle(PASSES), strict=False)], ids=str)
def test_a_bad_kernel_is_left_out_with_one_line(trusting, monkeypatch, how, which):
    bad, words = BAD[how]
    fake = Fake(which, bad)
    monkeypatch.setattr(CONVOLUTION, "algorithms", (fake, BY_NAME["windows"]))
    planner = Planner("triton+gemm", remember=False)
    problem = conv(device="cpu")
    for other in (problem, problem, replace(problem, stride=(2, 2)), conv(outs=8, device="cpu")):
        assert [a.name for a in planner.checked_candidates(other)] == ["windows"]
        assert planner.plan(other).engine == "gemm"
    assert len(fake.ran) == PASSES.index(which) + 1  # once, on a small problem, and never again
    (record,) = trusting.records
    assert record.getMessage().startswith(f"kernel 'fake' is left out on cpu for torch.float32: {which} ")
    assert words in record.getMessage()
    assert "\n" not in record.getMessage()
    monkeypatch.setattr(CONVOLUTION, "algorithms", (fake,))
    assert f"fake: {which} " in refusal(problem)


SERVED = (
    conv(),
    conv((2, 24, 9, 11), 24, groups=24),
    conv((2, 3, 9, 11)),
    replace(conv(outs=24), transposed=True),
)


@each_row("algorithm", TRITON, ids=lambda a: a.name)
def test_the_small_problem_is_one_that_the_algorithm_serves(fresh, monkeypatch, algorithm):
    """Otherwise a kernel would be struck out for what it never serves."""
    card(monkeypatch)
    problem = next(p for p in SERVED if not algorithm.not_supported_reasons(p))
    checked = algorithm.tested_by()
    small = CONVOLUTION.small(problem, checked.kernel)
    assert checked.not_supported_reasons(small) == []
    assert small.problems() == []


@each_row("algorithm", TRITON, ids=lambda a: a.name)
def test_what_is_in_quarantine_serves_no_more(fresh, monkeypatch, algorithm):
    """By the kernel that all sizes of its tiles share, and by the tile alone; for one data type."""
    card(monkeypatch)
    problem = next(p for p in SERVED if not algorithm.not_supported_reasons(p))
    tested = algorithm.tested_by()
    for name in (tested.kernel, tested.name):
        record_of(problem.device).quarantine("conv", name, problem.dtype, "it fails")
        assert algorithm.not_supported_reasons(problem) == ["it fails"], name
        assert not algorithm.not_supported_reasons(replace(problem, dtype=torch.float16))
        STATE.clear()
    assert not algorithm.not_supported_reasons(problem)


def test_wrong_numbers_of_one_shape_are_left_out_of_the_race(trusting):
    problem = conv(device="cpu")
    for fake, left in ((Fake("forward", lambda y: y * 1.1), {"windows"}), (Fake(), {"fake", "windows"})):
        rows = time_candidates(
            CONVOLUTION, problem, "forward", [fake, BY_NAME["windows"]], Operands.of(problem), 1 << 40
        )
        assert {row.algorithm for row in rows} == left
    (record,) = trusting.records
    assert record.getMessage() == f"fake is left out for {problem}, forward: it gives wrong numbers"


def test_a_plan_goes_on_with_the_next_where_a_tile_does_not_compile(trusting, monkeypatch):
    large = Fake()
    monkeypatch.setattr(large, "prepare", raises(KeyError("out of resource: shared memory")))  # no RuntimeError
    monkeypatch.setattr(CONVOLUTION, "algorithms", (large, BY_NAME["windows"]))
    monkeypatch.setattr(CONVOLUTION, "preferred", lambda *args, **kwargs: (large.name, "windows"))
    assert Planner("triton+gemm", remember=False).plan(conv(device="cpu")).engine == "gemm"
    (record,) = trusting.records
    assert "KeyError: 'out of resource: shared memory" in record.getMessage()
