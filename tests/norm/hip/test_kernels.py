"""The BatchNorm kernels of engine hip, run as host code through their algorithm and compared with fp64."""

import ctypes
from pathlib import Path

import pytest
import torch

from yolo_rocm.engines.hip import program
from yolo_rocm.engines.hip.program import Launch
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.trust import checks
from yolo_rocm.engines.trust.record import record_of
from yolo_rocm.norm.base import Parameters
from yolo_rocm.norm.hip import batch_norm
from yolo_rocm.norm.plan import NORMALISATION
from yolo_rocm.norm.problem import LEAKY_RELU, SILU, NormProblem

from ...conv.hip import on_host
from ..calls import assert_exact, computed, drawn, in_fp64

pytestmark = [pytest.mark.once, pytest.mark.skipif(on_host.COMPILER is None, reason="no C++ compiler")]
SOURCE = Path(batch_norm.__file__).with_name("batch_norm.hip.cpp")
HIP = batch_norm.HipNorm()


LAUNCH_OF = batch_norm.launch_of


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch):
    """Launch on the CPU, on three processors."""

    def launch_of(problem, kernel, grid, *numbers):
        return on_host.bound(on_host.compiled(SOURCE, batch_norm.defines_of(problem))[kernel], grid, 256, numbers)

    monkeypatch.setattr(batch_norm, "launch_of", launch_of)
    monkeypatch.setattr(batch_norm, "device_reason", lambda device: None)
    monkeypatch.setattr(batch_norm, "processors", lambda device: 3)


@pytest.mark.parametrize(
    ("shape", "channels_last", "activation", "training", "dtype"),
    [
        ((2, 8, 6, 6), False, SILU, True, torch.float32),
        ((2, 36, 5, 7), True, SILU, True, torch.float32),
        ((3, 5, 7, 5), False, LEAKY_RELU, True, torch.float32),
        ((3, 5, 7, 5), True, "relu", False, torch.float32),
        ((2, 8, 6, 6), True, "identity", True, torch.bfloat16),
    ],
    ids=str,
)
def test_values_statistics_and_gradients(shape, channels_last, activation, training, dtype) -> None:
    slope = 0.1 if activation == LEAKY_RELU else 0.0
    problem = NormProblem(shape, dtype, "cpu", channels_last, training, True, activation, slope)
    assert HIP.not_supported_reasons(problem) == []
    assert_exact(HIP, problem, drawn(problem))


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_many_parts_and_a_large_mean(channels_last: bool) -> None:
    """Parts are combined, few digits cancel, and the same input gives the same bits."""
    shape = (3, 8, 72, 72)
    problem = NormProblem(shape, torch.float32, "cpu", channels_last, activation=SILU)
    assert batch_norm._cut(problem)[3] > 1
    tensors = drawn(problem, mean=1000.0)
    first, _ = assert_exact(HIP, problem, tensors)
    second = computed(HIP, problem, tensors)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_a_tiny_variance_beside_a_large_mean(channels_last: bool) -> None:
    """What the means of parts differ by is below the digits that fp32 holds of them."""
    problem = NormProblem((3, 8, 72, 72), torch.float32, "cpu", channels_last)
    tensors = drawn(problem, mean=1000.0, std=0.01)
    statistics = computed(HIP, problem, tensors)
    exact = in_fp64(problem, tensors)
    assert relative_error(statistics["mean"], exact["mean"]) <= 1e-7
    assert relative_error(statistics["invstd"], exact["invstd"]) <= 2e-6


def test_the_first_value_of_a_channel_may_be_far_off() -> None:
    """And small beside what it stands for."""
    problem = NormProblem((3, 8, 72, 72), torch.float32, "cpu", False)
    tensors = drawn(problem)
    tensors["x"][0, :, 0, 0] = 1e4
    assert_exact(HIP, problem, tensors)


def test_a_momentum_of_each_batch_makes_no_launch_of_its_own(monkeypatch) -> None:
    """As `momentum=None` has it, which torch.optim.swa_utils.update_bn sets."""
    launched = []

    class Driver:
        @staticmethod
        def launch(*given):
            slots = given[-2]
            if len(slots) == 10:  # what combines statistics
                launched.append(ctypes.cast(slots[8], ctypes.POINTER(ctypes.c_float))[0])
            return 0

    class Loaded:
        def kernel(self, name, device):
            return self

        def bound(self, grid, block, *arguments):
            return Launch(Driver(), None, None, "kernel", 0, grid, block, arguments)

    monkeypatch.setattr(batch_norm, "launch_of", LAUNCH_OF)
    monkeypatch.setattr(batch_norm, "program_of", lambda defines: Loaded())
    monkeypatch.setattr(batch_norm, "_launches", {})
    monkeypatch.setattr(program, "current_device", lambda: 0)
    monkeypatch.setattr(program, "current_stream", lambda number: 0)
    problem = NormProblem((2, 8, 4, 4), torch.float32, "cpu")
    tensors = drawn(problem)
    kept = []
    for batch in (1, 2, 4):
        HIP.forward(problem, tensors["x"], Parameters(None, None, torch.zeros(8), torch.ones(8), 1 / batch, 1e-3))
        kept.append(len(batch_norm._launches))
    assert launched == [1.0, 0.5, 0.25]
    assert kept == [3, 3, 3]


@pytest.mark.parametrize("rows", [2**31 - 4, 2**31])
def test_as_many_values_as_32_bits_count(rows: int) -> None:
    """Of a channel without a sign's bit, of all with it."""
    one = NormProblem((1, 1, 1, rows), torch.float16, "cuda:0")
    assert bool(HIP.not_supported_reasons(one)) == (rows >= 2**31)
    two = NormProblem((1, 2, 1, rows), torch.float16, "cuda:0")
    assert bool(HIP.not_supported_reasons(two)) == (2 * rows >= 2**32 - 256)


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_the_kernels_qualify(fresh, monkeypatch, channels_last: bool) -> None:
    """On the small problem that a device is tried on before their first use."""
    monkeypatch.setattr(checks, "interpreted", lambda: False)
    problem = NORMALISATION.small(NormProblem((2, 8, 6, 6), torch.float32, "cpu", channels_last), HIP.kernel)
    assert HIP.not_supported_reasons(problem) == []
    checks.check(NORMALISATION, HIP, problem)
    assert record_of("cpu").quarantine_reason("norm", HIP.kernel, problem.dtype) is None
