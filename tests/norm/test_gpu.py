"""On a GPU: every algorithm against fp64, the vendor libraries' operators, and what they save for backward."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

from yolo_rocm.engines import dispatcher
from yolo_rocm.engines.backend_flags import vendor_off
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.layout import laid_out
from yolo_rocm.norm.algorithms import ALGORITHMS, BY_NAME
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NORMALISATION, PASSES, NormPlanner
from yolo_rocm.norm.problem import ACTIVATIONS, LEAKY_RELU, RELU, NormProblem
from yolo_rocm.norm.seam import installed, patched

from .calls import Only

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
GPU = ("cuda",)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(8, 16, 160, 160), (16, 64, 40, 40), (4, 256, 20, 20), (3, 17, 13, 11), (1, 3, 64, 48), (64, 1280, 1, 1)]


@pytest.fixture(autouse=True)
def with_cudnn(monkeypatch):
    """The vendor library is on, whatever an earlier test has left."""
    monkeypatch.setattr(torch.backends.cudnn, "enabled", True)


def made(shape, dtype=torch.float32, **options):
    """Return a problem on the GPU."""
    return NormProblem(shape, dtype, "cuda:0", **options)


def names(problem):
    """Return the algorithms that support a problem."""
    return [a.name for a in ALGORITHMS if not a.not_supported_reasons(problem)]


def operands_of(problem):
    """Return tensors of a problem whose result no single rounding decides, and which torch's own kernels can add up."""
    operands = NORMALISATION.operands(problem)
    grad = operands.grad
    if problem.activation in (RELU, LEAKY_RELU):  # at the bend the sign of a rounding is the gradient, or is not
        per_channel = (1, -1, *[1] * (grad.dim() - 2))
        held = (operands.mean, operands.invstd, operands.weight, operands.bias)
        mean, invstd, weight, bias = (each.double().view(per_channel) for each in held)
        z = (operands.x.double() - mean) * invstd * weight + bias
        grad = laid_out(grad.masked_fill(z.abs() < 1e-3, 0), problem.channels_last)
    if problem.dtype == torch.float16 and problem.rows > 2**14:  # torch adds fp16 up to fp16, which ends at 65504
        grad = grad / 16
    return operands._replace(grad=grad)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_algorithm_against_fp64(shape, training, channels_last, dtype):
    for activation in ACTIVATIONS:
        slope = 0.1 if activation == "leaky_relu" else 0.0
        problem = made(shape, dtype, channels_last=channels_last, training=training, activation=activation, slope=slope)
        operands = operands_of(problem)
        for which in PASSES:
            exact = NORMALISATION.in_fp64(problem, which, operands, "cuda:0")
            for name in names(problem):
                result = NORMALISATION.run(BY_NAME[name], problem, which, operands)
                error = NORMALISATION.distance(problem, which, result, exact)
                assert error <= (2e-4 if dtype == torch.float32 else 2e-2), (name, which, activation, error)


def layer_and_input(channels_last, dtype):
    torch.manual_seed(0)
    bn = torch.nn.BatchNorm2d(24).cuda()
    x = laid_out(torch.randn(4, 24, 20, 20, device="cuda").to(dtype), channels_last)
    return bn, x


def step(bn, x, forward=None, backward=None):
    """Return what a step computes, with patches on in forward and in backward; the layer stays as it is."""
    bn, leaf = copy.deepcopy(bn), x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    with nullcontext() if forward is None else installed(forward):
        y = bn(leaf)
    weights = torch.linspace(-1, 1, y.numel(), device="cuda").view(y.shape).to(y.dtype)
    with nullcontext() if backward is None else installed(backward):
        (y * weights).sum().backward()
    return [y.detach(), leaf.grad, *(p.grad for p in bn.parameters()), bn.running_mean, bn.running_var]


def assert_same(found, expected, dtype):
    most = 1e-4 if dtype == torch.float32 else 2e-2
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.stride() == theirs.stride()
        assert ours.dtype == theirs.dtype
        scale = float(theirs.float().abs().max())
        torch.testing.assert_close(ours, theirs, rtol=most, atol=most * max(scale, 1e-3))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("vendor", [True, False], ids=["vendor on", "vendor off"])
def test_forward_and_backward_on_either_side_of_a_patch(vendor, channels_last, dtype, training):
    """CuDNN or MIOpen on one side, ours on the other: what is saved is what they save."""
    bn, x = layer_and_input(channels_last, dtype)
    bn.train(training)
    with nullcontext() if vendor else vendor_off():
        expected = step(bn, x)
        problem = made(tuple(x.shape), dtype, channels_last=channels_last, training=training)
        for name in names(problem):
            patch = NormPatch(GPU, Only(BY_NAME[name]))
            for sides in ((patch, patch), (patch, None), (None, patch)):
                assert_same(step(bn, x, *sides), expected, dtype)
            served = list(patch.report.served.values())
            assert [(s.forward_calls, s.backward_calls) for s in served] == [(2, 2)]


@pytest.mark.skipif(not dispatcher.HANDS_OUT, reason="torch < 2.9 hands out no kernels")
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_vendor_library_is_reached_and_gives_its_own_bits(dtype, channels_last):
    bn, x = layer_and_input(channels_last, dtype)
    expected = step(bn, x)
    patch = NormPatch(GPU, NormPlanner("vendor", True, remember=False))
    for ours, theirs in zip(step(bn, x, patch, patch), expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torchs_own_kernels_are_reached_without_being_handed_out(monkeypatch, dtype, channels_last):
    """As on torch < 2.9: `native_batch_norm.out`, and the two steps of SyncBatchNorm backward."""
    bn, x = layer_and_input(channels_last, dtype)
    with vendor_off():
        expected = step(bn, x)
        with monkeypatch.context() as older:
            older.setattr(dispatcher, "_HANDED_OUT", None)
            older.setattr(dispatcher, "HANDS_OUT", False)
            STATE.clear()
            patch = NormPatch(GPU, NormPlanner("aten", remember=False))
            assert patch.reachable
            found = step(bn, x, patch, patch)
            assert set(patch.report.engines()) == {"aten"}
        STATE.clear()
    assert_same(found, expected, dtype)


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_amp(channels_last):
    bn, x = layer_and_input(channels_last, torch.float32)
    conv = torch.nn.Conv2d(24, 24, 1).cuda()
    with patched(GPU, "gemm") as report, torch.autocast("cuda"):
        y = bn(conv(x))
        y.float().square().sum().backward()
    (served,) = report.served.values()
    assert served.problem.dtype == torch.float16
    assert served.problem.channels_last == channels_last
    assert bn.weight.grad.dtype == torch.float32
    assert bn.weight.grad.isfinite().all()


@pytest.mark.parametrize("make", [lambda x: x.permute(0, 1, 3, 2), lambda x: x[..., ::2], lambda x: x[:, :, 0]])
def test_inputs_of_other_strides_keep_torchs_layouts(make):
    x = make(torch.randn(3, 24, 10, 12, device="cuda"))
    with vendor_off():
        expected = F.batch_norm(x, None, None, training=True)
        with patched(GPU, "gemm"):
            found = F.batch_norm(x, None, None, training=True)
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_another_stream(monkeypatch):
    bn, x = layer_and_input(False, torch.float32)
    expected = step(bn, x)
    patch = NormPatch(GPU, NormPlanner("gemm", remember=False))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        found = step(bn, x, patch, patch)
    torch.cuda.synchronize()
    assert_same(found, expected, torch.float32)


def test_tuning_measures_every_candidate(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    problem = made((16, 32, 80, 80), activation="silu")
    planner = NormPlanner("auto", vendor_library=True)
    timings = planner.tune([problem])
    for which in PASSES:
        found = {row.algorithm for row in timings[problem][which]}
        assert {"torch", "aten"} <= found
    assert NormPlanner("auto", vendor_library=True).unmeasured([problem]) == []
