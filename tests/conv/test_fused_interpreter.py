"""Convolution, bias and activation in one kernel, in Triton's interpreter, against fp64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from yolo_rocm.conv.exactness import allowed_error
from yolo_rocm.conv.fused.algorithms import FUSED_ALGORITHMS, Epilogued, Separate
from yolo_rocm.conv.fused.patch import FusedPatch
from yolo_rocm.conv.fused.plan import FUSED, FusedPlanner, Operands
from yolo_rocm.conv.fused.problem import FusedProblem
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton.calls import Epilogue
from yolo_rocm.engines.activations import ACTIVATIONS, activate_in_place
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.triton.available import missing_reason

from ..interpreted import interpreter

pytestmark = [
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
    pytest.mark.usefixtures("interpreting"),
]
EPILOGUED = [algorithm for algorithm in FUSED_ALGORITHMS if isinstance(algorithm, Epilogued)]


@pytest.fixture(scope="module")
def interpreting():
    with interpreter():
        yield


def problem(shape, out_channels, kernel, groups=1, stride=1, dilation=1, dtype=torch.float32, last=False, **epilogue):
    weight = (out_channels, shape[1] // groups, kernel, kernel)
    pad = (dilation * (kernel // 2),) * 2
    conv = ConvProblem(shape, weight, (stride,) * 2, pad, (dilation,) * 2, (0, 0), groups, False, dtype, "cpu", last)
    return FusedProblem(conv, epilogue.pop("bias", True), Epilogue(**epilogue))


def in_fp64(given, operands):
    conv = given.conv
    x, weight, bias = (each.double() for each in operands)
    y = torch.nn.functional.conv2d(
        x, weight, bias if given.bias else None, conv.stride, conv.padding, conv.dilation, conv.groups
    )
    return activate_in_place(y, *given.epilogue)


def of_kind(algorithm, dtype, last, **epilogue):
    """Return a problem with odd sizes that an algorithm supports."""
    if algorithm.kernel in ("depthwise", "hip_direct"):
        return problem((1, 20, 5, 7), 20, 3, groups=20, dtype=dtype, last=last, **epilogue)
    channels, stride = (3 if algorithm.kernel in ("flat", "hip_few") else 20), (2 if algorithm.exact else 1)
    return problem((1, channels, 5, 7), 20, 3, stride=stride, dtype=dtype, last=last, **epilogue)


def error_share(algorithm, given, operands=None):
    """Return the error against fp64 as a part of what a convolution alone may err, and the layout of the result."""
    operands = operands or Operands.of(given)
    found = FUSED.run(algorithm, given, "forward", operands)
    return relative_error(found, in_fp64(given, operands)) / allowed_error(given.conv, "forward"), found.stride()


def supported(algorithm, given):
    reasons = algorithm.not_supported_reasons(given)
    assert all("no tile" in why for why in reasons)
    return not reasons


CASES = [
    (algorithm, dtype, last)
    for algorithm in EPILOGUED
    for dtype, last in ((torch.float32, False), (torch.float16, True), (torch.bfloat16, True))
    if algorithm.name in ("triton_m", "triton_flat", "triton_depthwise") or dtype == torch.float16
]


@pytest.mark.parametrize(("algorithm", "dtype", "last"), CASES, ids=lambda value: getattr(value, "name", str(value)))
def test_every_kernel_and_tile_computes_bias_and_silu_with_the_convolution(algorithm, dtype, last):
    given = of_kind(algorithm, dtype, last, activation="silu")
    if not supported(algorithm, given):
        pytest.skip("no such tile for this family")
    share, strides = error_share(algorithm, given)
    assert share <= 1
    assert (strides[1] == 1) is last


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("name", "bias"), [("triton_m", False), ("triton_flat", True), ("triton_depthwise", False)])
def test_every_activation_with_and_without_bias(name, activation, bias):
    algorithm = next(each for each in EPILOGUED if each.name == name)
    slope = 0.3 if activation == "leaky_relu" else 0.0
    given = of_kind(algorithm, torch.float32, True, activation=activation, slope=slope, bias=bias)
    assert error_share(algorithm, given)[0] <= 1
    other = replace(given, epilogue=Epilogue("relu" if activation != "relu" else "silu"))
    operands = Operands.of(given)
    assert relative_error(FUSED.run(algorithm, other, "forward", operands), in_fp64(given, operands)) > 1e-2


@pytest.mark.parametrize(
    "given",
    [
        problem((1, 32, 5, 6), 8, 1, activation="silu"),
        problem((1, 16, 5, 5), 24, 3, groups=2, dilation=2, activation="silu", last=True),
        problem((2, 8, 6, 7), 16, 5, groups=8, activation="leaky_relu", slope=0.1, last=True),
        problem((1, 20, 3, 4), 40, 3, activation="relu"),
    ],
    ids=str,
)
def test_other_shapes(given):
    tried = [a for a in EPILOGUED if supported_or_not(a, given)]
    assert tried
    for algorithm in tried[:1]:
        assert error_share(algorithm, given)[0] <= 1, algorithm.name


def supported_or_not(algorithm, given):
    return not algorithm.not_supported_reasons(given)


@pytest.mark.parametrize("name", ["triton_m", "triton_depthwise"])
def test_some_channels_of_a_tensor_are_read_where_they_are(name):
    algorithm = next(each for each in EPILOGUED if each.name == name)
    given = of_kind(algorithm, torch.float16, True, activation="silu")
    whole = Operands.of(given)
    wide = torch.cat([whole.x, whole.x, whole.x], 1).contiguous(memory_format=torch.channels_last)
    count = given.conv.in_channels
    view = wide[:, count : 2 * count]
    assert not view.is_contiguous(memory_format=torch.channels_last)
    assert error_share(algorithm, given, Operands(view, whole.weight, whole.bias))[0] <= 1


@pytest.mark.parametrize("name", ["triton_m", "triton_depthwise"])
def test_a_bias_with_gaps(name):
    algorithm = next(each for each in EPILOGUED if each.name == name)
    given = of_kind(algorithm, torch.float32, True, activation="silu")
    whole = Operands.of(given)
    bias = torch.stack([whole.bias, whole.bias + 100], 1)[:, 0]
    assert not bias.is_contiguous()
    assert error_share(algorithm, given, Operands(whole.x, whole.weight, bias))[0] <= 1


def test_extreme_values_stay_what_torch_makes_of_them():
    algorithm = next(each for each in EPILOGUED if each.name == "triton_s")
    given = problem((1, 16, 1, 4), 16, 1, activation="silu", bias=False)
    x = torch.tensor([float("nan"), -1e30, 1e30, 0.0]).view(1, 1, 1, 4).expand(1, 16, 1, 4).contiguous()
    weight = torch.eye(16).view(16, 16, 1, 1).clone()
    x[:, 1:] = 0
    found = FUSED.run(algorithm, given, "forward", Operands(x, weight, torch.zeros(16)))[0, 0, 0]
    assert found[0].isnan()
    assert torch.equal(found[1:], torch.tensor([-0.0, 1e30, 0.0]))


def test_the_planner_takes_a_kernel_with_its_activation_where_triton_is_the_engine():
    patch = FusedPatch(("cpu",), FusedPlanner("triton", remember=False))
    x = torch.randn(1, 16, 6, 6).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(32, 16, 3, 3)
    route = patch.route(x, weight, True, ((1, 1), (1, 1), (1, 1), 1), Epilogue("silu"))
    assert isinstance(route.algorithm, Epilogued)
    gemm = FusedPatch(("cpu",), FusedPlanner("gemm", remember=False))
    assert isinstance(gemm.route(x, weight, True, ((1, 1), (1, 1), (1, 1), 1), Epilogue("silu")).algorithm, Separate)
