"""Every way to compute a BatchNorm against fp64: all are tried, and one that is wrong anywhere is found out."""

from __future__ import annotations

import sys

import pytest
import torch

from yolo_rocm.bench import certify_norms
from yolo_rocm.bench.certify import Certification
from yolo_rocm.bench.certify_norms import PROBLEMS, check_algorithm, norm_probes, problems_of
from yolo_rocm.diagnosis.probe_child import NotSupportedError
from yolo_rocm.diagnosis.probes import DTYPES, LAYOUTS
from yolo_rocm.engines import qualification
from yolo_rocm.norm.algorithms import ALGORITHMS, BY_NAME
from yolo_rocm.norm.base import Statistics
from yolo_rocm.norm.plan import Operands
from yolo_rocm.norm.pytorch import Torch

from ..tables import each_row


def test_every_algorithm_is_tried_in_every_data_type_and_layout():
    names = [(probe.way, probe.dtype, probe.layout, probe.shape) for probe in norm_probes()]
    assert sorted(names) == sorted(
        (a.engine, d, layout, a.name) for a in ALGORITHMS for d in DTYPES for layout in LAYOUTS
    )
    assert {probe.dtype for probe in norm_probes(quick=True)} == {"fp32"}
    assert norm_probes()[-1].way == "vendor"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ours_are_right(dtype, layout):
    share, detail = check_algorithm(BY_NAME["torch"], problems_of(BY_NAME["torch"], dtype, layout, "cpu"))
    assert 0 < share <= 1, detail
    assert detail["problems"] == len(PROBLEMS)
    assert detail["results"] > 10 * len(PROBLEMS)


def test_sums_of_gradients_are_above_what_fp16_holds():
    shape = PROBLEMS["large-sums"]
    grad = shape.operands(shape.problem(torch.float16, "cpu", False)).grad
    assert float(grad.double().sum((0, 2, 3)).abs().min()) > torch.finfo(torch.float16).max


class Sick(Torch):
    """Wrong in one thing."""

    def __init__(self, what: str) -> None:
        self._what = what

    def forward(self, problem, x, p):
        """Compute values and statistics, and update the running ones."""
        self._again = False
        y, statistics = super().forward(problem, x, p)
        self._again = True
        if self._what == "mean":  # of one channel
            statistics.mean[0] += 1e-3
        if self._what in ("running_mean", "running_var") and problem.training:
            getattr(p, self._what)[-1] *= 1.001
        if self._what == "counted":
            p.batches.add_(1)
        return y * 1.01 if self._what == "y" else y, statistics

    def activate(self, problem, x, p, statistics):
        """Compute the activation once more."""
        again = super().activate(problem, x, p, statistics)
        if self._what == "again" and self._again:  # in the last bit of one value
            again.view(-1)[0] = torch.nextafter(again.view(-1)[0], torch.tensor(float("inf")))
        return again

    def backward(self, problem, grad, x, p, statistics, wanted):
        """Compute the gradients."""
        if self._what == "touched":
            p.running_var[0] += 1
        if self._what == "grad_x":
            statistics = Statistics(statistics.mean, statistics.invstd * 1.001)
        grads = super().backward(problem, grad, x, p, statistics, wanted)
        if self._what == "grad_weight" and grads.weight is not None:
            grads.weight[-1] = float("nan")
        if self._what == "grad_bias" and grads.bias is not None:
            grads.bias.clamp_(-65504, 65504)  # as a sum in fp16
            grads.bias[grads.bias.abs() == 65504] = float("inf")
        return grads


WRONG = ["y", "mean", "running_mean", "running_var", "counted", "again", "touched"]
WRONG += ["grad_x", "grad_weight", "grad_bias"]


@each_row("what", WRONG)
def test_whatever_is_wrong_is_found_out(what):
    share, detail = check_algorithm(Sick(what), problems_of(BY_NAME["torch"], "fp32", "nchw", "cpu"))
    assert not share <= 1, detail
    # Computed once more from other statistics, a value has other bits.
    assert detail["pass"] == (what if what not in ("y", "mean") else "again")
    assert what != "grad_bias" or detail["problem"] == "large-sums"


def test_what_is_not_supported_says_why():
    with pytest.raises(NotSupportedError, match=r"Triton has no kernels for cpu|older than 2\.0|not installed"):
        problems_of(BY_NAME["triton_s"], "fp32", "nchw", "cpu")


def test_a_kernel_has_to_qualify_as_before_its_first_use(monkeypatch):
    class Quarantined(Torch):
        kernel = "batch_norm"

        def not_supported_reasons(self, problem):
            """Say so once the engine room has looked at it."""
            return ["its error is 1.0"] if asked else []

    asked: list[object] = []
    monkeypatch.setattr(certify_norms, "check", lambda operator, algorithm, problem: asked.append(problem))
    problems = {"silu": PROBLEMS["silu"].problem(torch.float32, "cpu", False)}
    with pytest.raises(RuntimeError, match=r"does not qualify: its error is 1\.0"):
        check_algorithm(Quarantined(), problems)
    monkeypatch.setattr(certify_norms, "check", qualification.check)
    Quarantined.not_supported_reasons = lambda self, problem: []
    assert check_algorithm(Quarantined(), problems)[1]["qualified"] is True


def test_references_do_not_touch_the_device():
    shape = PROBLEMS["silu"]
    operands: Operands = shape.operands(shape.problem(torch.float32, "a device that is none", False))
    assert {tensor.device.type for tensor in operands} == {"cpu"}


# The package's own process, with one algorithm made wrong.
SICK = """
from yolo_rocm.bench import certify_norms
from yolo_rocm.norm.pytorch import Torch

def wrong(self, problem, x, p, right=Torch.forward):
    y, statistics = right(self, problem, x, p)
    if problem.training:
        p.running_var.mul_(1.01)
    return y, statistics

Torch.forward = wrong
certify_norms.main()
"""


@pytest.mark.deep
@pytest.mark.once
def test_a_wrong_algorithm_fails_the_part():
    command = [sys.executable, "-c", SICK, "--device", "cpu"]
    found = Certification("cpu", quick=True, norms_command=command)._norms(lambda *_: None)
    assert [words.partition(":")[0] for words in found.failures][:2] == [
        "gemm/fp32/nchw/torch", "gemm/fp32/nhwc/torch",
    ]  # fmt: skip
    assert "wrong, running_var of" in found.failures[0]
    assert found.results["tried"]["gemm/fp32/nchw/torch"]["status"] == "wrong"
