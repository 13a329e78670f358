"""Kernels that do not compile, give wrong numbers or spill are left out, and the others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME, Algorithm
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, Operands, Planner
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton import launch
from yolo_rocm.engines.trust import checks
from yolo_rocm.engines.trust.record import record_of
from yolo_rocm.engines.tuning import time_candidates

from .problems import made_problem as conv
from .triton_machines import card, refusal

TRITON = [algorithm for algorithm in ALGORITHMS if algorithm.engine == "triton"]


# What becomes of bad kernels.


class Fake(Algorithm):
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


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("how", BAD)
def test_a_bad_kernel_is_quarantine_reason_with_one_line(trusting, monkeypatch, how, which):
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


def test_a_good_kernel_is_checked_once_for_each_dtype(trusting, monkeypatch):
    fake = Fake()
    monkeypatch.setattr(CONVOLUTION, "algorithms", (fake, BY_NAME["windows"]))
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
    monkeypatch.setattr(checks, "interpreted", lambda: False)
    monkeypatch.setattr(checks, "small_problem_error", lambda operator, checked, small: seen.append((checked, small)))
    problems = [
        conv(),
        conv((2, 24, 9, 11), 24, groups=24),
        conv((2, 3, 9, 11)),
        replace(conv(outs=24), transposed=True),
    ]
    for problem in problems:
        if not algorithm.not_supported_reasons(problem):
            checks.check(CONVOLUTION, algorithm, problem)
    ((checked, small),) = seen
    assert checked.not_supported_reasons(small) == []
    assert small.problems() == []


@pytest.mark.parametrize("algorithm", TRITON, ids=lambda a: a.name)
def test_what_is_quarantine_reason_serves_no_more(fresh, monkeypatch, algorithm):
    """By the kernel that all sizes of its tiles share, and by the tile alone; for one data type."""
    card(monkeypatch)
    problems = [
        conv(),
        conv((2, 24, 9, 11), 24, groups=24),
        conv((2, 3, 9, 11)),
        replace(conv(outs=24), transposed=True),
    ]
    problem = next(p for p in problems if not algorithm.not_supported_reasons(p))
    tested = algorithm.tested_by()
    for name in (tested.kernel, tested.name):
        record_of(problem.device).quarantine("conv", name, problem.dtype, "it fails")
        assert algorithm.not_supported_reasons(problem) == ["it fails"], name
        assert not algorithm.not_supported_reasons(replace(problem, dtype=torch.float16))
        STATE.clear()
    assert not algorithm.not_supported_reasons(problem)


def test_wrong_numbers_of_one_shape_are_left_out_of_the_race(trusting):
    problem = conv(device="cpu")
    rows = time_candidates(
        CONVOLUTION,
        problem,
        "forward",
        [Fake("forward", lambda y: y * 1.1), BY_NAME["windows"]],
        Operands.of(problem),
        1 << 40,
    )
    assert [row.algorithm for row in rows] == ["windows"]
    (record,) = trusting.records
    assert record.getMessage() == f"fake is left out for {problem}, forward: it gives wrong numbers"
    trusting.clear()
    rows = time_candidates(CONVOLUTION, problem, "forward", [Fake(), BY_NAME["windows"]], Operands.of(problem), 1 << 40)
    assert {row.algorithm for row in rows} == {"fake", "windows"}
    assert not trusting.records


def test_a_tile_that_spills_is_not_timed(trusting, monkeypatch):
    def spills(problem, which):
        raise launch.Spills("12 registers")

    fake, problem = Fake(), conv(device="cpu")
    monkeypatch.setattr(fake, "prepare", spills)
    rows = time_candidates(CONVOLUTION, problem, "forward", [fake, BY_NAME["windows"]], Operands.of(problem), 1 << 40)
    assert [row.algorithm for row in rows] == ["windows"]
    assert fake.ran == []


def test_a_tile_that_does_not_fit_the_device_gives_way_to_the_next(trusting, monkeypatch):
    """A compiler's own errors are no RuntimeErrors; the plan of a problem must not end in one."""

    class TooLarge(Exception):
        pass

    class Large(Fake):
        def prepare(self, problem, which):
            raise TooLarge("out of resource: shared memory")

    large = Large()
    monkeypatch.setattr(CONVOLUTION, "algorithms", (large, BY_NAME["windows"]))
    monkeypatch.setattr(CONVOLUTION, "preferred", lambda *args, **kwargs: (large.name, "windows"))
    problem = conv(device="cpu")
    assert Planner("triton+gemm", remember=False).plan(problem).engine == "gemm"
    (record,) = trusting.records
    assert "TooLarge: out of resource: shared memory" in record.getMessage()
    rows = time_candidates(
        CONVOLUTION, problem, "forward", [Large(), BY_NAME["windows"]], Operands.of(problem), 1 << 40
    )
    assert [row.algorithm for row in rows] == ["windows"]
