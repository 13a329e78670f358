"""BatchNorm by each engine of compiled kernels on a GPU, NVIDIA or AMD; skipped where none compiles for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.triton import direct
from yolo_rocm.engines.triton.available import triton_version
from yolo_rocm.norm.algorithms import ALGORITHMS
from yolo_rocm.norm.base import Parameters
from yolo_rocm.norm.problem import ACTIVATIONS, SILU, NormProblem

from .calls import EPS, MOMENTUM, assert_exact, computed, drawn, in_fp64

DEVICE = "cuda:0"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
ALL = (True, True, True)
# Layers of yolov8n, and sizes that are multiples of nothing.
SHAPES = [
    (8, 16, 160, 160), (4, 32, 80, 80), (8, 80, 40, 40), (8, 64, 40, 40), (8, 256, 20, 20), (2, 128, 20, 20),
    (3, 5, 37, 29), (1, 3, 640, 640), (2, 33, 1, 1), (5, 7, 2, 3), (1, 130, 13, 11), (64, 8, 7, 7),
]  # fmt: skip


def of_engine(engine):
    return [algorithm for algorithm in ALGORITHMS if algorithm.engine == engine]


def parameters(tensors):
    """Return what the layer of some tensors holds."""
    own = (tensors[name] for name in ("weight", "bias", "running_mean", "running_var"))
    return Parameters(*own, MOMENTUM, EPS, torch.tensor(41, device=DEVICE))


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_size_against_fp64_and_the_same_bits_again(engine, shape, dtype, last):
    """Also the activation that is recomputed, and whichever way a launch is made."""
    number = SHAPES.index(shape)
    activation = SILU if number % 2 == 0 else ACTIVATIONS[number // 2 % 4]
    for training in (True, False):
        problem = NormProblem(shape, dtype, DEVICE, last, training, True, activation, 0.1)
        tensors = drawn(problem, 0.5, 2.0)
        exact = in_fp64(problem, tensors)
        for algorithm in of_engine(engine):
            STATE.clear()
            results, _ = assert_exact(algorithm, problem, tensors, exact)
            for _ in range(2):
                again = computed(algorithm, problem, tensors)
                assert all(torch.equal(value, again[name]) for name, value in results.items()), algorithm.name
    if engine == "triton" and direct.OLDEST <= triton_version() <= direct.NEWEST:
        assert not direct._given_up


def test_large_means_and_tiny_variances(engine):
    for last in (False, True):
        problem = NormProblem((8, 16, 80, 80), torch.float32, DEVICE, last)
        tensors = drawn(problem, 1000.0, 0.01)
        exact = in_fp64(problem, tensors)
        for algorithm in of_engine(engine):
            results = computed(algorithm, problem, tensors)
            assert relative_error(results["mean"], exact["mean"]) <= 1e-7
            assert relative_error(results["invstd"], exact["invstd"]) <= 1e-5


def test_in_a_graph(engine):
    """Recorded and replayed: every launch is among what is recorded."""
    problem = NormProblem((4, 32, 40, 40), torch.float16, DEVICE, True, True, True, SILU)
    tensors = drawn(problem)
    x, grad, p = tensors["x"], tensors["grad"], parameters(tensors)
    for algorithm in of_engine(engine):
        y, statistics = algorithm.forward(problem, x, p)
        expected = algorithm.backward(problem, grad, x, p, statistics, ALL)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            recorded, found = algorithm.forward(problem, x, p)
            grads = algorithm.backward(problem, grad, x, p, found, ALL)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(recorded, y)
        assert all(torch.equal(one, two) for one, two in zip(grads, expected, strict=True))


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
def test_beyond_2_to_the_31(engine, last):
    """Offsets of 64 bits, in a tensor that says of each plane, or row, which it is."""
    shape = (2, 2, 23171, 23171)
    if torch.cuda.get_device_properties(0).total_memory < 16 * 2**30:
        pytest.skip("too little memory")
    problem = NormProblem(shape, torch.float16, DEVICE, last, False, True, SILU)
    small = replace(problem, shape=(1, 2, 1, 4))
    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.zeros(shape, dtype=torch.float16, device=DEVICE).contiguous(memory_format=layout)
    x[-1, :, -1, -4:] = torch.arange(8.0, device=DEVICE).view(2, 4)
    p = parameters(drawn(small))
    tail = x[-1:, :, -1:, -4:].contiguous(memory_format=layout)
    for algorithm in of_engine(engine)[:2]:
        y, _ = algorithm.forward(problem, x, p)
        assert torch.equal(y[-1:, :, -1:, -4:], algorithm.forward(small, tail, p)[0])
        del y
