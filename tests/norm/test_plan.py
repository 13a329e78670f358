"""Normalisation in the engine room: planned, measured, kept apart from convolutions; wrong results are found out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from yolo_rocm.conv.plan import CONVOLUTION
from yolo_rocm.engines import tuning
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.trust import checks
from yolo_rocm.engines.trust.checks import ROUNDINGS
from yolo_rocm.engines.trust.record import record_of
from yolo_rocm.errors import ConfigError
from yolo_rocm.norm.algorithms import ALGORITHMS, BY_NAME
from yolo_rocm.norm.base import NormGrads, Statistics
from yolo_rocm.norm.native import reachable
from yolo_rocm.norm.plan import NORMALISATION, PASSES, NormPlanner, Operands
from yolo_rocm.norm.problem import ACTIVATIONS
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


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("which", PASSES)
def test_what_is_right_is_far_below_every_limit(which, training, activation, dtype):
    problem = NORMALISATION.small(made(dtype=dtype, training=training, activation=activation), "any")
    assert distance(BY_NAME["torch"], problem, which) < ROUNDINGS * torch.finfo(dtype).eps / 8


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_qualification_finds_out_what_is_broken(fresh, monkeypatch, caplog, broken, dtype):
    monkeypatch.setattr(checks, "interpreted", lambda: False)
    problem = made((2, 8, 16, 16), dtype, activation="silu")
    checks.check(NORMALISATION, Compiled(), problem)
    assert not Compiled().not_supported_reasons(problem)
    STATE.clear()
    checks.check(NORMALISATION, broken(), problem)
    (why,) = broken().not_supported_reasons(problem)
    assert "is wrong, its relative error is" in why
    assert not record_of("cpu").quarantine_reason("conv", "sums", dtype)  # another operator's may be called so


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_the_tuner_leaves_out_what_is_broken(fresh, caplog, broken):
    """On the shape itself, where a channel is one of many."""
    problem = made((2, 64, 20, 20), activation="silu")
    operands = Operands.of(problem)
    kept = {}
    for which in PASSES:
        candidates = [Compiled(), broken(), Compiled(), BY_NAME["torch"]]
        candidates[1].name, candidates[2].name = "broken", "after it"
        rows = tuning.time_candidates(NORMALISATION, problem, which, candidates, operands, 1 << 40)
        kept[which] = {row.algorithm for row in rows}
    assert kept["forward"] & kept["backward"] == {"compiled", "after it", "torch"}
    assert "broken is left out" in caplog.text
    assert "it gives wrong numbers" in caplog.text


def test_running_a_pass_leaves_the_operands_as_they_are():
    problem = made()
    operands = Operands.of(problem)
    before = [t.clone() for t in operands]
    for algorithm in ("torch", "aten"):
        for which in PASSES:
            NORMALISATION.run(BY_NAME[algorithm], problem, which, operands)
            NORMALISATION.call(BY_NAME[algorithm], problem, which, operands, 1 << 40)()
    assert all(map(torch.equal, operands, before))


@pytest.mark.parametrize("channels_last", [True, False])
def test_operands_are_of_the_problem(channels_last):
    problem = made((3, 5, 4, 6), torch.float16, channels_last=channels_last)
    operands = Operands.of(problem)
    assert operands.x.dtype == operands.grad.dtype == torch.float16
    assert operands.x.is_contiguous(memory_format=torch.channels_last) == channels_last
    found = BY_NAME["torch"].forward(problem, operands.x, operands.parameters(problem))[1]
    torch.testing.assert_close(found, Statistics(operands.mean, operands.invstd), rtol=1e-5, atol=1e-5)


def test_heuristics_before_anything_was_measured():
    native = "aten" if reachable("cpu") else "torch"
    plans = {device: NormPlanner(remember=False).plan(made(device=device)) for device in ("cpu",)}
    assert [plans["cpu"][which].algorithm.name for which in PASSES] == [native] * 2
    assert "by heuristics" in plans["cpu"]["forward"].reason
    assert NormPlanner("gemm", remember=False).plan(made()).engine == "gemm"
    assert NORMALISATION.preferred(made(device="cuda:0"), "forward", ("gemm", "aten"))[0] != "aten"
    assert {a.engine for a in ALGORITHMS} >= {"vendor", "aten", "gemm"}


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


def test_another_size_takes_the_nearest(folder):
    planner = NormPlanner("auto")
    planner.use({made((2, 8, 16, 16)): {which: "torch" for which in PASSES}})
    plan = planner.plan(made((4, 8, 16, 16)))
    assert plan["forward"].reason == "fastest when measured on 2x8x16x16"
    other = planner.plan(made((4, 8, 16, 16), activation="silu"))
    assert "by heuristics" in other["forward"].reason


def test_settings_are_refused_in_the_operators_name():
    with pytest.raises(ConfigError, match=r"norm\.memory_mb must be at least 1"):
        NormPlanner("gemm", memory_mb=0)


def test_names_are_unique_within_an_operator():
    for operator in (NORMALISATION, CONVOLUTION):
        names = [a.name for a in operator.algorithms]
        assert len(names) == len(set(names))
    shared = {a.name for a in NORMALISATION.algorithms} & {a.name for a in CONVOLUTION.algorithms}
    assert shared >= {"vendor", "aten"}
