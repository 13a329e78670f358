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
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, Operands, Planner
from yolo_rocm.engines import devices, tuning
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.kernel_errors import Spills
from yolo_rocm.engines.trust import checks
from yolo_rocm.engines.trust import record as records
from yolo_rocm.engines.trust.record import record_of
from yolo_rocm.engines.tuning import time_candidates
from yolo_rocm.errors import DeviceLostError, EngineError, YoloRocmError

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


def test_a_failure_is_told_and_the_others_go_on(told):
    failing = Failing(RuntimeError("miopenStatusUnknownError\nsomewhere"))
    assert timed(failing, BY_NAME["windows"]) == ["windows"]
    (record,) = told.records
    assert record.getMessage() == f"failing is left out for {PROBLEM}, forward: RuntimeError: miopenStatusUnknownError"
    assert record.levelno == logging.WARNING
    timed(failing, BY_NAME["windows"])
    assert [record.levelno for record in told.records] == [
        logging.WARNING,
        logging.DEBUG,
    ]  # not the same for every layer


@pytest.mark.parametrize(
    ("error", "engine"),
    [(torch.cuda.OutOfMemoryError("HIP out of memory."), "gemm"), (Spills("12 registers"), "triton")],
    ids=["memory", "spills"],
)
def test_what_is_nothing_to_be_warned_about_is_told_too(told, error, engine):
    assert timed(Failing(error, engine=engine), BY_NAME["windows"]) == ["windows"]
    (record,) = told.records
    assert record.levelno == logging.DEBUG
    assert f"{type(error).__name__}: {error}" in record.getMessage()


def test_one_that_is_not_exact_enough_is_told(told, monkeypatch):
    monkeypatch.setattr(tuning, "exact_enough", lambda operator, algorithm, problem, which: algorithm.name == "windows")
    assert timed(Failing(None), BY_NAME["windows"]) == ["windows"]
    (record,) = told.records
    assert "failing is left out" in record.getMessage()
    assert "errs more than twice" in record.getMessage()


@pytest.mark.parametrize("which", PASSES)
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


def test_a_mistake_of_ours_is_no_candidate_that_fails(told):
    with pytest.raises(TypeError):
        timed(Failing(TypeError("a bug")))


def test_who_takes_the_device_along_is_named_and_nobody_runs_after_it(told, dead, tmp_path):
    after = Failing(None)
    with pytest.raises(DeviceLostError) as caught:
        timed(BY_NAME["windows"], Failing(STICKY, "grad_weight"), after, which="grad_weight")
    text = str(caught.value)
    assert f"'failing' computed grad_weight of {PROBLEM}: RuntimeError: HIP error: an illegal memory access" in text
    assert "start the same command again" in text
    assert "\n" not in text
    (file,) = tmp_path.glob("faults-*.json")
    assert str(file) in text
    assert isinstance(caught.value, YoloRocmError)
    assert caught.value.__cause__ is STICKY
    assert after.ran == 0
    assert not told.records  # nothing was booked as something else


def test_the_next_process_does_without_it_until_the_file_is_deleted(told, choice, monkeypatch, tmp_path):
    failing = choice(Failing(STICKY), BY_NAME["windows"])
    other = replace(PROBLEM, input_shape=(1, 8, 9, 9))
    with monkeypatch.context() as patch:
        patch.setattr(records, "alive", lambda device: False)
        with pytest.raises(DeviceLostError):
            Planner("gemm").tune([PROBLEM])
    failing.error, failing.ran = None, 0
    STATE.clear()  # another process
    for planner in (Planner("gemm"), Planner("gemm", remember=False)):
        assert [a.name for a in planner.checked_candidates(other)] == ["windows"]
        assert planner.plan(other).engine == "gemm"
        planner.tune([other])
        half = replace(other, dtype=torch.bfloat16)
        assert [a.name for a in planner.candidates(half)] == ["failing", "windows"]
    assert failing.ran == 0
    (file,) = tmp_path.glob("faults-*.json")
    (record,) = told.records
    assert record.getMessage().startswith(
        "'failing' is left out on cpu for float32: it made the device fault in forward"
    )
    assert record.getMessage().endswith(f"delete {file} to have it tried again")
    file.unlink()
    STATE.clear()
    assert [a.name for a in Planner("gemm").candidates(other)] == ["failing", "windows"]


def test_two_data_types_are_remembered_side_by_side(told, dead):
    for dtype in (torch.float32, torch.bfloat16):
        with pytest.raises(DeviceLostError):
            records.raise_if_lost(STICKY, replace(PROBLEM, dtype=dtype), "conv", "failing", "forward")
    STATE.clear()
    record_of("cpu").recall_faults()
    for dtype, count in ((torch.float32, 1), (torch.bfloat16, 1), (torch.float16, 0)):
        assert len(record_of("cpu").reasons("conv", "failing", replace(PROBLEM, dtype=dtype))) == count
    assert record_of("cpu").reasons("conv", "windows", PROBLEM) == []
    assert record_of("cpu").reasons("norm", "failing", PROBLEM) == []  # another operator's, of the same name


def test_operators_may_call_their_algorithms_alike(told, dead):
    with pytest.raises(DeviceLostError):
        records.raise_if_lost(STICKY, PROBLEM, "norm", "windows", "forward")
    STATE.clear()
    assert "windows" in [a.name for a in Planner("gemm").candidates(PROBLEM)]
    assert len(record_of("cpu").reasons("norm", "windows", PROBLEM)) == 1
    assert [record.getMessage()[:31] for record in told.records] == ["'windows' is left out on cpu fo"]


def test_where_nothing_is_left_the_refusal_says_why(told, choice, dead, tmp_path):
    choice(Failing(STICKY))
    planner = Planner("gemm")
    with pytest.raises(DeviceLostError):
        planner.tune([PROBLEM])
    with pytest.raises(EngineError, match=r"failing: it made the device fault in forward .* delete .*faults-"):
        planner.plan(PROBLEM)


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
    broken = Failing(RuntimeError("no memory"))
    monkeypatch.setattr(CONVOLUTION, "reference", lambda problem: broken)
    kernel = Failing(None, engine="triton")
    kernel.name = "kernel"
    assert timed(kernel) == []
    assert "kernel is left out" in told.records[0].getMessage()
    assert "failing, which it is compared with, fails with RuntimeError: no memory" in told.records[0].getMessage()
    monkeypatch.setattr(records, "alive", lambda device: False)
    with pytest.raises(DeviceLostError, match="'failing' computed forward"):
        timed(kernel)


def test_a_fault_of_what_a_kernel_is_compared_with_shows_before_the_kernel_runs(told, dead, monkeypatch):
    """Work of a GPU fails when somebody waits for it."""
    ran = []

    def waits(device):
        if ran:
            raise STICKY

    def call(algorithm, *args):
        return lambda: (ran.append(algorithm.name), torch.ones(3))[1]

    monkeypatch.setattr(CONVOLUTION, "call", call)
    monkeypatch.setattr(torch.cuda, "synchronize", waits)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    with pytest.raises(DeviceLostError, match="'windows' computed forward"):
        there, kernel = replace(PROBLEM, device="cuda:0"), Failing(None, engine="triton")
        time_candidates(CONVOLUTION, there, "forward", [kernel], Operands.of(PROBLEM), 1 << 40)
    assert ran == ["windows"]


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


@pytest.mark.parametrize(("factor", "serves"), [(1.0, True), (float("nan"), False)])
def test_a_new_kernel_is_compared_once(told, choice, monkeypatch, factor, serves):
    """Not a number is wrong, though it is not greater than any limit."""

    class Scaled(Failing):
        def _or_raise(self, which, compute):
            return super()._or_raise(which, compute) * factor

    monkeypatch.setattr(checks, "interpreted", lambda: False)
    kernel = choice(Scaled(None, engine="triton"))
    for _ in range(2):
        checks.check(CONVOLUTION, kernel, PROBLEM)
        assert (record_of("cpu").quarantine_reason("conv", "failing", torch.float32) is None) is serves
        runs, kernel.ran = kernel.ran, 0
    assert runs == 0


def test_a_tile_that_takes_the_device_along_when_it_is_loaded(told, dead, monkeypatch):
    monkeypatch.setattr(checks, "interpreted", lambda: False)
    monkeypatch.setattr(checks, "small_problem_error", lambda *args: None)
    failing = Failing(None, engine="triton")

    def loads(problem, which):
        raise STICKY

    monkeypatch.setattr(failing, "prepare", loads)
    with pytest.raises(DeviceLostError, match="'failing' computed forward of"):
        checks.check(CONVOLUTION, failing, PROBLEM, "forward")


# Whether a device is alive.


class Gpu:
    """What a device says when it is asked."""

    def __init__(self, monkeypatch, synchronize=None, compute=None, result=64.0) -> None:
        self.asked: list[object] = []

        def waits(device):
            self.asked.append(device)
            if synchronize is not None:
                raise synchronize

        def ones(count, device):
            if compute is not None:
                raise compute
            return SimpleNamespace(sum=lambda: result)

        monkeypatch.setattr(devices, "on", lambda device: nullcontext(self.asked.append(device)))
        monkeypatch.setattr(torch.cuda, "synchronize", waits)
        monkeypatch.setattr(torch, "ones", ones)


@pytest.mark.parametrize(
    ("says", "answers"),
    [
        ({}, True),
        ({"synchronize": STICKY}, False),
        ({"synchronize": AssertionError("Torch not compiled with CUDA enabled")}, False),
        ({"compute": STICKY}, False),
        ({"compute": torch.cuda.OutOfMemoryError("HIP out of memory.")}, True),
        ({"result": 0.0}, False),
    ],
)
def test_a_device_is_asked_to_compute(monkeypatch, says, answers):
    gpu = Gpu(monkeypatch, **says)
    assert devices.alive("cuda:1") is answers
    assert set(gpu.asked) == {torch.device("cuda:1")}


def test_a_cpu_lives(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: pytest.fail("asked a GPU"))
    assert devices.alive("cpu")
