"""Every algorithm against fp64: all of them are tried, a wrong one is found out, and one that crashes is named."""

from __future__ import annotations

import sys

import pytest
import torch

from yolo_rocm.bench import certify_kernels
from yolo_rocm.bench.certify_kernels import KernelProbe, check_algorithm, kernel_probes, problems_of
from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME
from yolo_rocm.conv.exactness import allowed_error
from yolo_rocm.conv.gemm.unfold import Unfold
from yolo_rocm.diagnosis.outcome import Limits
from yolo_rocm.diagnosis.probe_child import NotSupportedError
from yolo_rocm.diagnosis.probe_runner import run_probes
from yolo_rocm.diagnosis.probes import DTYPES, LAYOUTS

ON_CPU = [a for a in ALGORITHMS if a.engine == "gemm" and a.name != "depthwise_kernel"]  # that one needs a GPU


def test_every_algorithm_is_tried_in_every_data_type_and_layout():
    names = [(probe.way, probe.dtype, probe.layout, probe.shape) for probe in kernel_probes()]
    assert sorted(names) == sorted(
        (a.engine, d, layout, a.name) for a in ALGORITHMS for d in DTYPES for layout in LAYOUTS
    )
    assert {probe.dtype for probe in kernel_probes(quick=True)} == {"fp32"}
    assert kernel_probes()[-1].way == "vendor"
    assert len(",".join(probe.name for probe in kernel_probes())) < 20_000  # Windows takes 32,767 characters


def test_sizes_fit_no_tile():
    problems = [shape.problem(torch.float32, "cpu", False) for shape in certify_kernels.PROBLEMS.values()]
    assert all(size % 2 for problem in problems for size in problem.input_size)
    assert {problem.transposed for problem in problems} == {False, True}
    assert not [problem for problem in problems if problem.problems() or problem.empty]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ON_CPU, ids=lambda a: a.name)
def test_ours_are_right(algorithm, layout):
    share, detail = check_algorithm(algorithm, problems_of(algorithm, "fp32", layout, "cpu"))
    assert 0 < share <= 1, detail
    assert detail["results"] == 3 * detail["problems"] > 0


class Wrong(Unfold):
    """Leaves out the last row of the image: an off-by-one at the edge."""

    name = "wrong"

    def forward(self, problem, x, weight, bias):
        """Compute the output."""
        cut = x.clone()
        cut[:, :, -1] = 0
        return super().forward(problem, cut, weight, bias)


class Nan(Unfold):
    """Reads what nobody wrote."""

    name = "nan"

    def grad_weight(self, problem, grad, x):
        """Compute the gradient of the weight."""
        result = super().grad_weight(problem, grad, x).clone()
        result.view(-1)[0] = float("nan")
        return result


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_kernel_is_found_out(dtype):
    share, detail = check_algorithm(Wrong(), problems_of(Wrong(), dtype, "nchw", "cpu"))
    assert share > 10
    assert (detail["pass"], detail["error"] > detail["allowed"]) == ("forward", True)
    share, detail = check_algorithm(Nan(), problems_of(Nan(), dtype, "nchw", "cpu"))
    assert share != share
    assert detail["pass"] == "grad_weight"


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sick_native_kernel_does_not_widen_the_bound(dtype, monkeypatch):
    """One that is off by a fifth would allow two fifths to everybody; half precision rounds by less than that too."""
    right = certify_kernels.native_passes

    def sick(problem, operands):
        passes = right(problem, operands)
        return passes if operands.x.dtype == torch.float64 else {which: 1.2 * each for which, each in passes.items()}

    problems = problems_of(BY_NAME["unfold"], dtype, "nchw", "cpu")
    monkeypatch.setattr(certify_kernels, "native_passes", sick)
    certify_kernels._reference.cache_clear()
    try:
        share, detail = check_algorithm(Wrong(), problems)
    finally:
        certify_kernels._reference.cache_clear()
    problem = problems[detail["problem"]]
    assert detail["allowed"] == allowed_error(problem, detail["pass"])
    assert share > 10


def test_references_do_not_touch_the_device():
    """A native kernel that brings the device down would be taken for the one of ours that is tried."""
    problem = certify_kernels.PROBLEMS["3x3"].problem(torch.float32, "a device that is none", False)
    operands, exact, native = certify_kernels._reference(problem)
    assert {tensor.device.type for tensor in (*operands, *exact.values())} == {"cpu"}
    assert set(native) == set(exact)


def test_tiles_have_neighbours():
    """The largest tiles have 128 columns: one problem takes more than one of them, whichever channels they are."""
    for names in (names for kernel, names in certify_kernels._FOR_KERNELS.items() if kernel != "flat"):
        shapes = [certify_kernels.PROBLEMS[name] for name in names]
        assert any(min(shape.channels, shape.out) > 128 for shape in shapes)


def test_what_is_not_supported_says_why():
    with pytest.raises(NotSupportedError, match=r"float16 is not float32"):
        problems_of(BY_NAME["winograd2"], "fp16", "nchw", "cpu")
    with pytest.raises(NotSupportedError, match="GPUs only"):
        problems_of(BY_NAME["depthwise_kernel"], "fp32", "nchw", "cpu")


# The package's own process, with one kernel made wrong, one that crashes, and one that raises.
SICK = """
import os, signal
from yolo_rocm.bench import certify_kernels
from yolo_rocm.conv.algorithms import BY_NAME

def wrong(self, problem, x, weight, bias, right=type(BY_NAME["unfold"]).forward):
    return right(self, problem, x, weight, bias) * 1.001

def dies(self, *args):
    os.kill(os.getpid(), signal.SIGSEGV)

def raises(self, *args):
    raise RuntimeError("hipErrorNoBinaryForGpu")

type(BY_NAME["unfold"]).forward = wrong
type(BY_NAME["planes"]).grad_input = dies
type(BY_NAME["columns"]).grad_weight = raises
certify_kernels.main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_kernel_that_crashes_takes_nobody_with_it():
    names = ("pointwise", "unfold", "planes", "columns", "shift_rows")
    probes = [KernelProbe("kernel", "gemm", "fp32", "nchw", name) for name in names]
    answers = run_probes(probes, [sys.executable, "-c", SICK, "--device", "cpu"], Limits())
    assert [o.status for o in answers.outcomes] == ["ok", "wrong", "segfault", "error", "ok"]
    assert answers.outcomes[1].detail["error"] == pytest.approx(1e-3, rel=0.1)
    assert "hipErrorNoBinaryForGpu" in answers.outcomes[3].message
