"""On a GPU, NVIDIA or AMD: the contract of every algorithm, the seam beside vendor libraries, graphs, streams."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from yolo_rocm.engines import dispatcher
from yolo_rocm.engines.backend_flags import vendor_off
from yolo_rocm.engines.layout import laid_out
from yolo_rocm.engines.triton import direct
from yolo_rocm.engines.triton.available import triton_version
from yolo_rocm.norm.algorithms import ALGORITHMS
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner, Operands
from yolo_rocm.norm.problem import ACTIVATIONS, LEAKY_RELU, RELU, SILU
from yolo_rocm.norm.seam import installed

from .calls import CONTRACT, DTYPES, Only, made

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICE, GPU = "cuda:0", ("cuda",)
# Layers of yolov8n, and sizes that are multiples of nothing.
SHAPES = [
    (8, 16, 160, 160), (4, 32, 80, 80), (8, 80, 40, 40), (8, 256, 20, 20), (3, 5, 37, 29), (1, 3, 640, 640),
    (64, 1280, 1, 1), (5, 7, 2, 3), (1, 130, 13, 11), (64, 8, 7, 7),
]  # fmt: skip


@pytest.fixture(autouse=True)
def with_cudnn(monkeypatch):
    """The vendor library is on, whatever an earlier test has left."""
    monkeypatch.setattr(torch.backends.cudnn, "enabled", True)


def supporting(problem, engine=None):
    """Return the algorithms that support a problem."""
    return [a for a in ALGORITHMS if not a.not_supported_reasons(problem) and engine in (None, a.engine)]


def operands_of(problem):
    """Return tensors of a problem whose result no single rounding decides, and which torch's own kernels can add up."""
    operands = Operands.of(problem, mean_of_input=0.5)
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


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_contract(shape, dtype, last):
    """Also the same bits again, whichever way a launch is made."""
    number = SHAPES.index(shape)
    activation = SILU if number % 2 == 0 else ACTIVATIONS[number // 2 % 4]
    for training in (True, False):
        problem = made(shape, dtype, DEVICE, channels_last=last, training=training, activation=activation)
        operands = operands_of(problem)
        for algorithm in supporting(problem):
            CONTRACT.check_values(algorithm, problem, operands=operands)
            if algorithm.engine not in ("aten", "vendor"):
                CONTRACT.check_order(algorithm, problem)
    if direct.OLDEST <= (triton_version() or (0, 0)) <= direct.NEWEST:
        assert not direct._given_up


def test_in_a_graph(engine):
    """Recorded and replayed: every launch is among what is recorded."""
    problem = made((4, 32, 40, 40), torch.float16, DEVICE, channels_last=True, activation=SILU)
    o, wanted = Operands.of(problem), (True, True, True)
    p = o.parameters(problem)
    for algorithm in supporting(problem, engine):
        y, statistics = algorithm.forward(problem, o.x, p)
        expected = algorithm.backward(problem, o.grad, o.x, p, statistics, wanted)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            recorded, found = algorithm.forward(problem, o.x, p)
            grads = algorithm.backward(problem, o.grad, o.x, p, found, wanted)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(recorded, y)
        assert all(torch.equal(one, two) for one, two in zip(grads, expected, strict=True))


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
def test_beyond_2_to_the_31(engine, last):
    """Offsets of 64 bits, in a tensor that says of each plane, or row, which it is."""
    if torch.cuda.get_device_properties(0).total_memory < 16 * 2**30:
        pytest.skip("too little memory")
    shape = (2, 2, 23171, 23171)
    problem = made(shape, torch.float16, DEVICE, channels_last=last, training=False, activation=SILU)
    small = replace(problem, shape=(1, 2, 1, 4))
    x = laid_out(torch.zeros(shape, dtype=torch.float16, device=DEVICE), last)
    x[-1, :, -1, -4:] = torch.arange(8.0, device=DEVICE).view(2, 4)
    p, tail = Operands.of(small).parameters(small), laid_out(x[-1:, :, -1:, -4:], last)
    for algorithm in supporting(problem, engine)[:2]:
        y, _ = algorithm.forward(problem, x, p)
        assert torch.equal(y[-1:, :, -1:, -4:], algorithm.forward(small, tail, p)[0])
        del y


def layer_and_input(channels_last, dtype):
    torch.manual_seed(0)
    bn = torch.nn.BatchNorm2d(24).cuda()
    return bn, laid_out(torch.randn(4, 24, 20, 20, device="cuda").to(dtype), channels_last)


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
        assert (ours.dtype, ours.stride()) == (theirs.dtype, theirs.stride())
        torch.testing.assert_close(ours, theirs, rtol=most, atol=most * max(float(theirs.float().abs().max()), 1e-3))


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("vendor", [True, False], ids=["vendor on", "vendor off"])
def test_forward_and_backward_on_either_side_of_a_patch(vendor, channels_last):
    """CuDNN or MIOpen on one side, ours on the other: what is saved is what they save."""
    for dtype in DTYPES:
        bn, x = layer_and_input(channels_last, dtype)
        for training in (True, False):
            bn.train(training)
            with nullcontext() if vendor else vendor_off():
                expected = step(bn, x)
                problem = made(tuple(x.shape), dtype, DEVICE, channels_last=channels_last, training=training)
                for algorithm in supporting(problem):
                    patch = NormPatch(GPU, Only(algorithm))
                    for sides in ((patch, patch), (patch, None), (None, patch)):
                        assert_same(step(bn, x, *sides), expected, dtype)
                    served = list(patch.report.served.values())
                    assert [(s.forward_calls, s.backward_calls) for s in served] == [(2, 2)]


@pytest.mark.skipif(not dispatcher.HANDS_OUT, reason="torch < 2.9 hands out no kernels")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_vendor_library_is_reached_and_gives_its_own_bits(dtype):
    bn, x = layer_and_input(dtype != torch.float32, dtype)
    expected = step(bn, x)
    patch = NormPatch(GPU, NormPlanner("vendor", True, remember=False))
    assert all(map(torch.equal, step(bn, x, patch, patch), expected))
