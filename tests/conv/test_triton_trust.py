"""Kernels that do not compile, give wrong numbers or spill are left out, and the others go on."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME, Algorithm
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, Operands, Planner
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.trust import checks
from yolo_rocm.engines.trust.record import record_of
from yolo_rocm.engines.tuning import time_candidates

from ..tables import each_row
from .problems import made_problem as conv
from .triton_machines import card, refusal

TRITON = [algorithm for algorithm in ALGORITHMS if algorithm.engine == "triton"]


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


@pytest.mark.parametrize(("how", "which"), zip(BAD, itertools.cycle(PASSES), strict=False), ids=str)
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
