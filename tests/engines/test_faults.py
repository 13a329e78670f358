"""Candidates that fail are told and left out; one that takes the device with it is named, and remembered on disk."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.gemm.windows import Windows
from yolo_rocm.conv.plan import CONVOLUTION, Operands, Planner
from yolo_rocm.engines import devices, tuning
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.kernel_errors import Spills
from yolo_rocm.engines.trust import checks
from yolo_rocm.engines.trust import record as records
from yolo_rocm.engines.trust.record import record_of
from yolo_rocm.engines.tuning import time_candidates
from yolo_rocm.errors import DeviceLostError

from ..conv.problems import made_problem

STICKY = RuntimeError("HIP error: an illegal memory access was encountered\nHIP kernel errors might be reported later")
PROBLEM = made_problem((1, 8, 5, 6), 8, device="cpu")


class Failing(Windows):
    """An algorithm that raises in one pass."""

    name = "failing"

    def __init__(self, error: Exception | None, which: str = "forward", engine: str = "gemm") -> None:
        self.error, self.which, self.engine = error, which, engine
        self.kernel = "failing" if engine == "triton" else None
        self.ran = 0

    def forward(self, problem, x, weight, bias):
        """Compute the output."""
        return self._or_raise("forward", lambda: super(Failing, self).forward(problem, x, weight, bias))

    def grad_weight(self, problem, grad, x):
        """Compute the gradient of the weight."""
        return self._or_raise("grad_weight", lambda: super(Failing, self).grad_weight(problem, grad, x))

    def _or_raise(self, which, compute):
        self.ran += 1
        if self.error is not None and which == self.which:
            raise self.error
        return compute()


@pytest.fixture
def told(fresh, monkeypatch, tmp_path, caplog):
    """Nothing is remembered, and what is goes to a folder of its own; what is logged is kept."""
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    caplog.set_level(logging.DEBUG, logger="yolo_rocm")
    return caplog


@pytest.fixture
def dead(monkeypatch):
    """The device does not answer any more once something has failed."""
    monkeypatch.setattr(records, "alive", lambda device: False)


@pytest.fixture
def choice(monkeypatch):
    """Let planners choose from these algorithms alone."""

    def among(*algorithms):
        monkeypatch.setattr(CONVOLUTION, "algorithms", algorithms)
        return algorithms[0]

    return among


def timed(*algorithms, which="forward"):
    rows = time_candidates(CONVOLUTION, PROBLEM, which, algorithms, Operands.of(PROBLEM), 1 << 40)
    return [row.algorithm for row in rows]


@pytest.mark.parametrize(
    ("error", "engine", "level"),
    [
        (RuntimeError("miopenStatusUnknownError\nsomewhere"), "gemm", logging.WARNING),
        (torch.cuda.OutOfMemoryError("HIP out of memory."), "gemm", logging.DEBUG),
        (Spills("12 registers"), "triton", logging.DEBUG),
    ],
    ids=["failure", "memory", "spills"],
)
def test_a_failure_is_told_and_the_others_go_on(told, error, engine, level):
    for _ in range(2):
        assert timed(Failing(error, engine=engine), BY_NAME["windows"]) == ["windows"]
    assert [record.levelno for record in told.records] == [level, logging.DEBUG]  # not the same for every layer
    reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    assert told.records[0].getMessage() == f"failing is left out for {PROBLEM}, forward: {reason}"


@pytest.mark.parametrize("which", ["forward", "grad_input"])
@pytest.mark.parametrize(("off", "serves"), [(0.0, True), (3e-6, False), (float("nan"), False)])
def test_speed_may_be_paid_with_a_few_digits(told, which, off, serves):
    class Quick(Failing):
        exact = False

        def _or_raise(self, which, compute):
            return compute() * (1 + off)

        def grad_input(self, problem, grad, weight):
            return super().grad_input(problem, grad, weight) * (1 + off)

    assert timed(Quick(None), which=which) == (["failing"] if serves else [])
    assert len(told.records) == (not serves)


def test_who_takes_the_device_along_is_named_and_nobody_runs_after_it(told, dead, tmp_path):
    after = Failing(None)
    with pytest.raises(DeviceLostError) as caught:
        timed(BY_NAME["windows"], Failing(STICKY, "grad_weight"), after, which="grad_weight")
    text, (file,) = str(caught.value), tmp_path.glob("faults-*.json")
    assert f"'failing' computed grad_weight of {PROBLEM}: RuntimeError: HIP error: an illegal memory access" in text
    assert "start the same command again" in text
    assert str(file) in text
    assert "\n" not in text
    assert caught.value.__cause__ is STICKY
    assert after.ran == 0
    assert not told.records  # nothing was booked as something else


def test_the_next_process_does_without_it_until_the_file_is_deleted(told, choice, monkeypatch, tmp_path):
    failing = choice(Failing(STICKY), BY_NAME["windows"])
    other = replace(PROBLEM, input_shape=(1, 8, 9, 9))
    half = replace(other, dtype=torch.bfloat16)
    with monkeypatch.context() as patch:
        patch.setattr(records, "alive", lambda device: False)
        with pytest.raises(DeviceLostError):
            Planner("gemm").tune([PROBLEM])
        with pytest.raises(DeviceLostError):  # another operator's algorithm of the same name
            records.raise_if_lost(STICKY, PROBLEM, "norm", "windows", "forward")
    failing.error, failing.ran = None, 0
    STATE.clear()  # another process
    for planner in (Planner("gemm"), Planner("gemm", remember=False)):
        assert [a.name for a in planner.checked_candidates(other)] == ["windows"]
        assert planner.plan(other).engine == "gemm"
        planner.tune([other])
        assert [a.name for a in planner.candidates(half)] == ["failing", "windows"]
    assert failing.ran == 0
    assert len(record_of("cpu").reasons("norm", "windows", PROBLEM)) == 1
    (file,) = tmp_path.glob("faults-*.json")
    line = next(record.getMessage() for record in told.records if record.getMessage().startswith("'failing'"))
    assert line.startswith("'failing' is left out on cpu for float32: it made the device fault in forward")
    assert line.endswith(f"delete {file} to have it tried again")
    with monkeypatch.context() as patch:  # data types stand side by side
        patch.setattr(records, "alive", lambda device: False)
        with pytest.raises(DeviceLostError):
            records.raise_if_lost(STICKY, half, "conv", "failing", "forward")
    STATE.clear()
    assert [[a.name for a in Planner("gemm").candidates(each)] for each in (other, half)] == [["windows"]] * 2
    file.unlink()
    STATE.clear()
    assert [a.name for a in Planner("gemm").candidates(other)] == ["failing", "windows"]


def test_what_was_measured_before_is_kept(told, choice, dead):
    """Another command begins where this one was stopped."""
    large, small = replace(PROBLEM, input_shape=(4, 8, 9, 9)), PROBLEM

    class FailsOnSmall(Failing):
        def forward(self, problem, x, weight, bias):
            if problem.input_shape == small.input_shape:
                raise STICKY
            return Windows.forward(self, problem, x, weight, bias)

    choice(FailsOnSmall(None), BY_NAME["windows"])
    with pytest.raises(DeviceLostError):
        Planner("gemm").tune([small, large])
    STATE.clear()
    assert Planner("gemm").unmeasured([small, large]) == [small]


def test_what_a_kernel_is_compared_with_is_told_from_the_kernel(told, monkeypatch):
    monkeypatch.setattr(CONVOLUTION, "reference", lambda problem: Failing(RuntimeError("no memory")))
    kernel = Failing(None, engine="triton")
    kernel.name = "kernel"
    assert timed(kernel) == []
    line = told.records[0].getMessage()
    assert line.startswith("kernel is left out")
    assert line.endswith("failing, which it is compared with, fails with RuntimeError: no memory")
    monkeypatch.setattr(records, "alive", lambda device: False)
    with pytest.raises(DeviceLostError, match="'failing' computed forward"):
        timed(kernel)


def test_operands_that_do_not_fit_cost_one_problem(told, monkeypatch, tmp_path):
    def nothing_left(problem):
        raise torch.cuda.OutOfMemoryError("HIP out of memory.")

    monkeypatch.setattr(Operands, "of", nothing_left)
    assert list(tuning.tune(CONVOLUTION, [PROBLEM], lambda problem: [BY_NAME["windows"]], 1 << 40, 60.0)) == []
    (record,) = told.records
    assert f"nothing is measured for {PROBLEM}, heuristics decide: OutOfMemoryError" in record.getMessage()
    monkeypatch.setattr(records, "alive", lambda device: False)
    with pytest.raises(DeviceLostError, match="since memory was taken for conv"):
        list(tuning.tune(CONVOLUTION, [PROBLEM], lambda problem: [BY_NAME["windows"]], 1 << 40, 60.0))
    assert not list(tmp_path.glob("faults-*.json"))  # nobody is to blame


def test_a_new_kernel_that_takes_the_device_along_in_its_small_run(told, dead, choice, monkeypatch, tmp_path):
    monkeypatch.setattr(checks, "interpreted", lambda: False)
    failing = choice(Failing(STICKY, "grad_weight", engine="triton"), BY_NAME["windows"])
    planner = Planner("triton+gemm")
    with pytest.raises(DeviceLostError, match="'failing' computed grad_weight of"):
        planner.checked_candidates(PROBLEM)
    assert record_of("cpu").quarantine_reason("conv", "failing", torch.float32) is None  # not as one that merely fails
    STATE.clear()
    failing.ran = 0
    assert [a.name for a in Planner("triton+gemm").checked_candidates(PROBLEM)] == ["windows"]
    assert failing.ran == 0


@pytest.mark.parametrize(
    ("synchronize", "compute", "answers"),
    [
        (None, lambda: 64.0, True),
        (None, lambda: 0.0, False),
        (STICKY, lambda: 64.0, False),
        (AssertionError("Torch not compiled with CUDA enabled"), lambda: 64.0, False),
        (torch.cuda.OutOfMemoryError("HIP out of memory."), lambda: 64.0, True),
    ],
)
def test_a_device_is_asked_to_compute(monkeypatch, synchronize, compute, answers):
    asked = []

    def waits(device):
        asked.append(device)
        if synchronize is not None:
            raise synchronize

    monkeypatch.setattr(devices, "on", lambda device: nullcontext(asked.append(device)))
    monkeypatch.setattr(torch.cuda, "synchronize", waits)
    monkeypatch.setattr(torch, "ones", lambda count, device: SimpleNamespace(sum=compute))
    assert devices.alive("cuda:1") is answers
    assert set(asked) == {torch.device("cuda:1")}
    asked.clear()
    assert devices.alive("cpu")
    assert not asked
