"""Normalisation in the engine room: planned, measured, kept apart from convolutions; wrong results are found out."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import pytest
import torch

from yolo_rocm.engines import dispatcher
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.trust import checks
from yolo_rocm.engines.trust.checks import ROUNDINGS
from yolo_rocm.engines.trust.record import record_of
from yolo_rocm.norm.algorithms import BY_NAME
from yolo_rocm.norm.base import NormGrads, Statistics
from yolo_rocm.norm.plan import NORMALISATION, PASSES, NormPlanner, Operands
from yolo_rocm.norm.problem import SILU
from yolo_rocm.norm.pytorch import Torch

from .calls import made

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    return tmp_path


class Compiled(Torch):
    """One whose kernel has to be qualified; broken on purpose by subclasses."""

    name = "compiled"
    engine = "triton"
    kernel = "sums"

    def not_supported_reasons(self, problem):
        """Support what is not quarantined."""
        names = (self.kernel, self.name)
        return [why for n in names if (why := record_of(problem.device).quarantine_reason("norm", n, problem.dtype))]


class OneChannelOff(Compiled):
    """The variance of the last channel is wrong."""

    def forward(self, problem, x, p):
        """Return a statistic that is off by a hundredth, and the right activation."""
        y, (mean, invstd) = super().forward(problem, x, p)
        wrong = invstd.clone()
        wrong[-1] *= 1.01
        return y, Statistics(mean, wrong)

    def activate(self, problem, x, p, statistics):
        """Return the right activation, as if the statistics were."""
        right = statistics.invstd.clone()
        right[-1] /= 1.01
        return super().activate(problem, x, p, Statistics(statistics.mean, right))


class UpdatesTwice(Compiled):
    """Running statistics are moved twice."""

    def forward(self, problem, x, p):
        """Run twice."""
        super().forward(problem, x, p._replace(batches=None))
        return super().forward(problem, x, p)


class CountsTwice(Compiled):
    """The batch is counted twice."""

    def forward(self, problem, x, p):
        """Count once more."""
        p.batches.add_(1)
        return super().forward(problem, x, p)


class OtherBits(Compiled):
    """What is recomputed is not what was computed."""

    def activate(self, problem, x, p, statistics):
        """Return another last value."""
        y = super().activate(problem, x, p, statistics).clone()
        y.view(-1)[-1] += 1
        return y

    def forward(self, problem, x, p):
        """Return the activation as it should be."""
        return Torch().forward(problem, x, p)


class ForgetsTheMean(Compiled):
    """The gradient of the input lacks what the statistics contribute."""

    def backward(self, problem, grad, x, p, statistics, wanted):
        """Compute as in eval mode."""
        fixed = replace(problem, training=False)
        return super().backward(fixed, grad, x, p, statistics, wanted)


class OneWeightOff(Compiled):
    """The gradient of one weight is wrong."""

    def backward(self, problem, grad, x, p, statistics, wanted):
        """Double the gradient of the first weight."""
        grads = super().backward(problem, grad, x, p, statistics, wanted)
        wrong = grads.weight.clone()
        wrong[0] += 3 * wrong.abs().max()
        return NormGrads(grads.x, wrong, grads.bias)


class UpdatesInBackward(Compiled):
    """Running statistics are moved again when backward recomputes the activation."""

    def backward(self, problem, grad, x, p, statistics, wanted):
        """Run forward once more."""
        super().forward(problem, x, p)
        return super().backward(problem, grad, x, p, statistics, wanted)


BROKEN = [
    OneChannelOff,
    UpdatesTwice,
    CountsTwice,
    OtherBits,
    ForgetsTheMean,
    OneWeightOff,
    UpdatesInBackward,
]


def distance(algorithm, problem, which):
    """Return the error that the engine room sees."""
    operands = NORMALISATION.operands(problem)
    result = NORMALISATION.run(algorithm, problem, which, operands)
    return NORMALISATION.distance(problem, which, result, NORMALISATION.in_fp64(problem, which, operands, "cpu"))


def test_what_is_right_is_far_below_every_limit():
    for dtype, training, which in product(DTYPES, (True, False), PASSES):
        problem = NORMALISATION.small(made(dtype=dtype, training=training, activation=SILU), "any")
        assert distance(BY_NAME["torch"], problem, which) < ROUNDINGS * torch.finfo(dtype).eps / 8


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_qualification_finds_out_what_is_broken(fresh, monkeypatch, caplog, broken):
    monkeypatch.setattr(checks, "interpreted", lambda: False)
    problem = made((2, 8, 16, 16), torch.bfloat16, activation=SILU)
    checks.check(NORMALISATION, Compiled(), problem)
    assert not Compiled().not_supported_reasons(problem)
    STATE.clear()
    checks.check(NORMALISATION, broken(), problem)
    (why,) = broken().not_supported_reasons(problem)
    assert "is wrong, its relative error is" in why
    assert not record_of("cpu").quarantine_reason("conv", "sums", problem.dtype)  # another operator's may be called so


def test_running_a_pass_leaves_the_operands_as_they_are():
    problem = made()
    operands = Operands.of(problem)
    before = [t.clone() for t in operands]
    for which in PASSES:
        NORMALISATION.run(BY_NAME["torch"], problem, which, operands)
        NORMALISATION.call(BY_NAME["torch"], problem, which, operands, 1 << 40)()
    assert all(map(torch.equal, operands, before))


def test_heuristics_before_anything_was_measured():
    plan = NormPlanner(remember=False).plan(made())
    assert [plan[which].algorithm.name for which in PASSES] == ["aten" if dispatcher.HANDS_OUT else "torch"] * 2
    assert "by heuristics" in plan["forward"].reason
    assert NormPlanner("gemm", remember=False).plan(made()).engine == "gemm"
    assert NORMALISATION.preferred(made(device="cuda:0"), "forward", ("gemm", "aten"))[0] != "aten"


def test_measuring_chooses_and_is_kept_apart_from_convolutions(folder):
    problem = made((2, 8, 16, 16))
    planner = NormPlanner("auto")
    timings = planner.tune([problem])
    assert set(timings[problem]) == set(PASSES)
    assert planner.plan(problem)["forward"].reason == "fastest when measured"
    (file,) = folder.glob("*.json")
    assert file.name.startswith("norm-")
    (entry,) = json.loads(file.read_text())["entries"].items()
    assert entry[0].startswith("batch norm on 2x8x16x16 float32 cpu | gemm+triton+hip+aten")
    assert set(entry[1]) == set(PASSES)
    assert NormPlanner("auto").unmeasured([problem]) == []
