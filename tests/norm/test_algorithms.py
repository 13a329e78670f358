"""Every algorithm against fp64: values, statistics, running statistics and all gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from yolo_rocm.norm.algorithms import ALGORITHMS, BY_NAME
from yolo_rocm.norm.base import Parameters
from yolo_rocm.norm.native import reachable
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.problem import ACTIVATIONS, LEAKY_RELU, RELU, NormProblem
from yolo_rocm.norm.seam import installed
from yolo_rocm.ultralytics_hooks import models

from .calls import EPS, assert_exact, computed, drawn, in_fp64, made

HERE = [a for a in ALGORITHMS if a.engine not in ("triton", "hip")]  # those run in ways of their own
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# BatchNorm inputs of yolov8n, yolo11n, yolo26n, yolov8n-seg and yolov8n-cls at small sizes: first layers with few
# channels and many pixels, depth-wise ones, heads, and a classifier's.
MODEL_SHAPES = [
    (2, 16, 80, 80), (2, 32, 40, 40), (2, 64, 20, 20), (2, 8, 80, 80), (2, 80, 20, 20), (3, 128, 10, 10),
    (2, 51, 20, 20), (2, 256, 5, 5), (4, 1280, 2, 2),
]  # fmt: skip


def runs(algorithm, problem) -> bool:
    """Return whether an algorithm can be tested on a problem."""
    if algorithm.engine in ("aten", "vendor") and problem.dtype == torch.float16:
        try:
            torch.native_batch_norm(torch.ones(2, 2).half(), None, None, None, None, True, 0.1, 0.1)
        except RuntimeError:  # torch 1.13
            return False
    return True


# Each data type, activation and layout, in training and in eval mode: not their product, which `test_drawn_problems`
# draws from.
KINDS = [
    (dtype, activation, bool(number % 2), number % 3 > 0)
    for number, (dtype, activation) in enumerate(zip(DTYPES * 3, 3 * ACTIVATIONS[1:] + ACTIVATIONS[:3], strict=True))
]


@pytest.mark.parametrize(("dtype", "activation", "channels_last", "training"), KINDS, ids=str)
@pytest.mark.parametrize("algorithm", HERE, ids=lambda a: a.name)
def test_kinds(poisoned, algorithm, dtype, activation, channels_last, training):
    slope = 0.1 if activation == LEAKY_RELU else 0.0
    problem = made(dtype=dtype, channels_last=channels_last, training=training, activation=activation, slope=slope)
    if not runs(algorithm, problem):
        pytest.skip("torch 1.13 has no BatchNorm of fp16 on a CPU")
    assert_exact(algorithm, problem, drawn(problem))


@pytest.mark.parametrize("shape", MODEL_SHAPES, ids=str)
def test_shapes_of_models(shape):
    """Layouts and algorithms take turns."""
    number = MODEL_SHAPES.index(shape)
    problem = made(shape, channels_last=bool(number % 2), activation="silu")
    tensors = drawn(problem, mean=0.5)
    for algorithm in (BY_NAME["torch"], HERE[number % len(HERE)]):
        if not algorithm.not_supported_reasons(problem):
            assert_exact(algorithm, problem, tensors)


OTHERS = [pytest.param(name, marks=pytest.mark.deep) for name in ("yolov8n", "yolo11n", "yolov8n-seg")]


@pytest.mark.parametrize("model", ["yolo26n", "yolov8n-cls", *OTHERS])
def test_every_layer_of_a_model(model):
    """As the seam meets them, at a small size, both layouts in turn."""
    try:
        module = models.torch_module(f"{model}.yaml").train()
    except FileNotFoundError:
        pytest.skip("this Ultralytics does not have the model")
    patch = NormPatch(["cpu"], NormPlanner("gemm", remember=False))
    with installed(patch), torch.no_grad():
        module(torch.rand(2, 3, 64, 64))
    layers = sum(isinstance(m, torch.nn.BatchNorm2d) for m in module.modules())
    assert sum(served.forward_calls for served in patch.report.served.values()) == layers
    for number, problem in enumerate(patch.report.served):
        own = replace(problem, channels_last=bool(number % 2), activation=ACTIVATIONS[number % 2])
        assert_exact(BY_NAME["torch"], own, drawn(own, mean=0.3, seed=number))


@st.composite
def problems(draw) -> NormProblem:
    """Draw a problem with at least two values of a channel."""
    sizes = draw(st.lists(st.integers(1, 7), min_size=0, max_size=3))
    batch = draw(st.integers(1, 5))
    shape = (batch, draw(st.integers(1, 9)), *sizes)
    training = draw(st.booleans())
    if training and batch * torch.Size(sizes).numel() < 2:
        shape = (2, *shape[1:])
    return NormProblem(
        shape,
        draw(st.sampled_from(DTYPES)),
        "cpu",
        draw(st.booleans()) and len(shape) in (4, 5),
        training,
        draw(st.booleans()),
        draw(st.sampled_from(ACTIVATIONS)),
        0.25,
    )


@settings(max_examples=60, deadline=None)
@given(problem=problems(), mean=st.sampled_from([0.0, 1.0, -30.0]), std=st.sampled_from([1.0, 1e-3]))
def test_drawn_problems(problem, mean, std):
    if problem.activation in (RELU, LEAKY_RELU):  # at the bend a rounding decides about the gradient
        mean, std = 0.0, 1.0
    tensors = drawn(problem, mean, std)
    exact = in_fp64(problem, tensors)
    for algorithm in HERE:
        if runs(algorithm, problem):
            assert_exact(algorithm, problem, tensors, exact)


@pytest.mark.parametrize(("mean", "std"), [(1e4, 1.0), (-1e3, 1e-2)])
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("algorithm", HERE, ids=lambda a: a.name)
def test_large_means_and_tiny_variances(algorithm, channels_last, mean, std):
    """The variance of values about a large mean is not what is left of two large numbers."""
    problem = made((4, 5, 16, 16), channels_last=channels_last)
    tensors = drawn(problem, mean, std)
    results, exact = assert_exact(algorithm, problem, tensors)
    if algorithm.engine == "gemm":
        # Means of samples are rounded to fp32 on the way, and so is the mean that everybody keeps for backward.
        torch.testing.assert_close(results["invstd"].double(), exact["invstd"], rtol=2e-5, atol=0)
        torch.testing.assert_close(results["mean"].double(), exact["mean"], rtol=2e-7, atol=std * 1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_statistics_of_half_precision_are_those_of_fp32(dtype):
    """In fp16 the squares of these would be infinite, and a mean of many would stop growing."""
    problem = made((8, 3, 32, 32), dtype)
    tensors = drawn(problem, 300.0, 8.0)
    results, exact = computed(BY_NAME["torch"], problem, tensors), in_fp64(problem, tensors)
    for name in ("mean", "invstd", "running_mean", "running_var"):
        torch.testing.assert_close(results[name].double(), exact[name], rtol=2e-6, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_bits_again_and_the_same_numbers_in_pieces(monkeypatch, dtype):
    problem = made((5, 4, 6, 6), dtype, channels_last=dtype == torch.float64, activation="silu")
    tensors = drawn(problem, 2.0)
    first, second = (computed(BY_NAME["torch"], problem, tensors) for _ in range(2))
    monkeypatch.setattr("yolo_rocm.norm.pytorch._PIECE", 2 * 4 * 36)
    pieces = computed(BY_NAME["torch"], problem, tensors)
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
        torch.testing.assert_close(pieces[name], value)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
@pytest.mark.parametrize(("training", "activation"), [(True, "identity"), (False, "relu")])
@pytest.mark.parametrize("algorithm", HERE, ids=lambda a: a.name)
def test_only_what_is_wanted(algorithm, training, activation, wanted):
    problem = made(training=training, activation=activation)
    t = drawn(problem)
    p = Parameters(t["weight"], t["bias"], t["running_mean"], t["running_var"], 0.1, EPS)
    _, statistics = algorithm.forward(problem, t["x"], p)
    everything = algorithm.backward(problem, t["grad"], t["x"], p, statistics, (True, True, True))
    some = algorithm.backward(problem, t["grad"], t["x"], p, statistics, wanted)
    for one, all_of_them, is_wanted in zip(some, everything, wanted, strict=True):
        assert (one is not None) == is_wanted
        if one is not None:
            torch.testing.assert_close(one, all_of_them, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("parameters", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("algorithm", HERE, ids=lambda a: a.name)
def test_parameters_of_a_model_in_half_precision(algorithm, parameters):
    problem = made(dtype=torch.bfloat16)
    tensors = drawn(problem, parameters=parameters)
    results, exact = computed(algorithm, problem, tensors), in_fp64(problem, tensors)
    assert results["grad_weight"].dtype == parameters
    assert results["running_mean"].dtype == parameters
    for name, value in results.items():
        torch.testing.assert_close(value.double(), exact[name], rtol=3e-2, atol=3e-2, msg=name)


def test_one_value_of_a_channel_leaves_what_torch_leaves():
    """torch.nn.functional refuses it; the operator does not."""
    problem = made((1, 3, 1, 1))
    tensors = drawn(problem)
    results = computed(BY_NAME["torch"], problem, tensors)
    mean, var = (tensors[name].clone() for name in ("running_mean", "running_var"))
    torch.native_batch_norm(tensors["x"], None, None, mean, var, True, 0.03, EPS)
    torch.testing.assert_close(results["running_mean"], mean)
    assert results["running_var"].isnan().all()
    assert var.isnan().all()


def test_what_is_no_floating_point_number_is_refused():
    assert BY_NAME["torch"].not_supported_reasons(made(dtype=torch.int64)) == [
        "dtype torch.int64 is not floating point"
    ]
    refusing = [a.name for a in HERE if a.not_supported_reasons(made())]
    assert refusing == ([] if reachable("cpu") else ["vendor", "aten"])


def test_workspace_does_not_grow_with_the_batch():
    small, large = (BY_NAME["torch"].workspace_bytes(made((n, 16, 320, 320))) for n in (16, 64))
    assert small == large
