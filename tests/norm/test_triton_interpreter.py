"""BatchNorm in Triton on a CPU, in Triton's interpreter: values, statistics and gradients against fp64."""

from __future__ import annotations

import weakref
from itertools import product

import pytest
import torch
import torch.nn.functional as F

from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.layout import laid_out
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.triton import launch
from yolo_rocm.engines.triton.available import missing_reason
from yolo_rocm.norm.base import Parameters, Statistics
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.problem import ACTIVATIONS, IDENTITY, LEAKY_RELU, SILU, NormProblem
from yolo_rocm.norm.seam import installed
from yolo_rocm.norm.triton import passes as triton_passes
from yolo_rocm.norm.triton.algorithm import TRITON
from yolo_rocm.norm.triton.tiles import SIZES, Tile

from ..interpreted import interpreter
from .calls import EPS, MOMENTUM, assert_exact, computed, drawn, in_fp64

pytestmark = [
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
    pytest.mark.usefixtures("interpreting"),
]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ALL = (True, True, True)


@pytest.fixture(scope="module")
def interpreting():
    with interpreter():
        yield


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of a few values, so that a small problem has many parts, on a device of several multiprocessors."""
    monkeypatch.setattr(triton_passes, "tile", lambda family, size: Tile(64, 1024, 1))
    monkeypatch.setattr(triton_passes, "processors", lambda device: 4)
    STATE.clear()
    yield
    STATE.clear()


def norm(shape, dtype=torch.float32, last=False, training=True, affine=True, activation=SILU, slope=0.0):
    return NormProblem(shape, dtype, "cpu", last, training, affine, activation, slope)


def assert_right(algorithm, problem, tensors=None):
    """Compare everything with fp64; the same call gives the same bits."""
    tensors = tensors or drawn(problem, 0.5, 2.0)
    results, _ = assert_exact(algorithm, problem, tensors)
    again = computed(algorithm, problem, tensors)
    for name, value in results.items():
        torch.testing.assert_close(value, again[name], rtol=0, atol=0, equal_nan=True)


def parameters(problem, tensors, **changes):
    """Return what the layer of some tensors holds."""
    own = (tensors[name] for name in ("weight", "bias", "running_mean", "running_var"))
    return Parameters(*(None if each is None else each.clone() for each in own), MOMENTUM, EPS)._replace(**changes)


SHAPES = {
    "square": (2, 5, 7, 9),
    "one pixel": (5, 7, 1, 1),
    "many channels": (2, 18, 2, 3),
    "no pixels": (6, 5),
    "one value a channel": (1, 3, 1, 1),
    "400 pixels": (2, 3, 20, 20),
    "one image": (1, 4, 6, 8),
    "one channel": (3, 1, 5, 4),
    "a row of pixels": (2, 3, 19),
    "three dimensions": (1, 2, 3, 4, 5),
    "16 pixels": (3, 2, 4, 4),
}
SHOWN = [pytest.param(name, marks=[pytest.mark.deep] * (number > 4)) for number, name in enumerate(SHAPES)]


@pytest.mark.parametrize("name", SHOWN)
def test_shapes(poisoned, name):
    """Layouts, data types, activations and sizes take turns, each at its own pace."""
    number, shape = list(SHAPES).index(name), SHAPES[name]
    for turn, last in enumerate((False, True) if len(shape) in (4, 5) else (False,)):
        activation = ACTIVATIONS[(number + 2 * turn) % 4]
        problem = norm(shape, DTYPES[(number + turn) % 3], last, activation=activation, slope=0.1)
        assert_right(TRITON[(number + turn) % len(SIZES)], problem)


def each_activation():
    """Return activations and layouts: SiLU in NCHW, a leaky ReLU in channels_last, and the others deep."""
    for number, (activation, last) in enumerate(product(ACTIVATIONS, (False, True))):
        marks = [] if number in (2, 7) else [pytest.mark.deep]
        yield pytest.param(activation, last, id=f"{activation} {'nhwc' if last else 'nchw'}", marks=marks)


@pytest.mark.parametrize(("activation", "last"), list(each_activation()))
def test_many_parts(poisoned, small_tiles, activation, last):
    """Parts of several tiles, the last of them shorter, planes that end inside a tile, channels that end inside one."""
    shape = (3, 20, 5, 7) if last else (5, 2, 9, 17)
    dtype = DTYPES[(ACTIVATIONS.index(activation) + last) % 2]
    problem = norm(shape, dtype, last, activation=activation, slope=0.2)
    cut = triton_passes.passes("s", problem)._parts
    assert cut.parts >= 3
    assert cut.tiles % cut.part_tiles
    assert problem.rows % (cut.block.a * (1 if last else cut.block.b))
    assert_right(TRITON[0], problem)


@pytest.mark.parametrize(("activation", "last"), list(each_activation()))
def test_whole_channels(poisoned, monkeypatch, activation, last):
    """Several tiles of each channel in one program: one launch for forward, one for backward, bits as elsewhere."""
    monkeypatch.setattr(triton_passes, "tile", lambda family, size: Tile(256, 1024, 1, whole=True))
    STATE.clear()
    launched, inner = [], launch.kernel_of
    monkeypatch.setattr(launch, "kernel_of", lambda call: launched.append(call.kernel) or inner(call))
    dtype = DTYPES[(ACTIVATIONS.index(activation) + last) % 3]
    problem = norm((3, 18, 5, 7) if last else (5, 2, 9, 17), dtype, last, activation=activation, slope=0.2)
    assert triton_passes.passes("one", problem)._parts.tiles > 1
    assert_right(TRITON[-1], problem)
    assert set(launched) == {"whole_forward", "activate", "whole_backward"}
    STATE.clear()


# Whether statistics are the batch's, and whether there are parameters and running statistics.
LESS = ((True, False, True), (True, True, False), (False, True, True), (False, False, True))


@pytest.mark.parametrize("parts", [pytest.param(False, marks=pytest.mark.deep), True], ids=["one part", "parts"])
def test_layers_that_have_less(poisoned, request, parts):
    """Without parameters, without running statistics, and with those in place of the batch's."""
    if parts:
        request.getfixturevalue("small_tiles")
    for training, affine, track in LESS:
        problem = norm((4, 2, 9, 11), torch.float32, affine, training, affine)
        tensors = drawn(problem)
        assert_right(TRITON[0], problem, tensors if track else {**tensors, "running_mean": None, "running_var": None})


@pytest.mark.parametrize("training", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_parameters_with_gaps_at_the_seam(training):
    """Kernels read and write them as if they had none."""
    torch.manual_seed(0)
    x, made = torch.randn(2, 4, 5, 6), [torch.rand(12) + 0.5 for _ in range(4)]

    def step(mean, var, weight, bias):
        leaf, weight, bias = (each.detach().requires_grad_() for each in (x, weight, bias))
        y = F.batch_norm(leaf, mean, var, weight, bias, training, 0.1)
        (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum().backward()
        return [y.detach(), leaf.grad, weight.grad, bias.grad, mean, var]

    expected = step(*(each[::3].clone() for each in made))
    between = [each.clone() for each in made]
    with installed(NormPatch(("cpu",), NormPlanner("triton", remember=False))):
        found = step(*(each[::3] for each in made))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    for each, before in zip(made, between, strict=True):
        assert torch.equal(each[1::3], before[1::3])
        assert torch.equal(each[2::3], before[2::3])


@pytest.mark.parametrize("training", [True, False], ids=["batch statistics", "running statistics"])
def test_gradients_that_are_not_wanted_are_not_computed(monkeypatch, small_tiles, training):
    problem = norm((4, 1, 9, 11), training=training)
    tensors, launched = drawn(problem), []
    p, inner = parameters(problem, tensors), launch.kernel_of
    monkeypatch.setattr(launch, "kernel_of", lambda call: launched.append(call.kernel) or inner(call))
    _, statistics = TRITON[0].forward(problem, tensors["x"], p)
    everything = TRITON[0].backward(problem, tensors["grad"], tensors["x"], p, statistics, ALL)
    for wanted in product((False, True), repeat=3):
        launched.clear()
        grads = TRITON[0].backward(problem, tensors["grad"], tensors["x"], p, statistics, wanted)
        sums = wanted[1] or wanted[2] or (wanted[0] and training)
        expected = ["partial_gradients", "combine_gradients"] if sums else []
        assert launched == expected + (["input_gradient"] if wanted[0] else [])
        for one, other, want in zip(grads, everything, wanted, strict=True):
            assert torch.equal(one, other) if want else one is None


@pytest.mark.parametrize("last", [pytest.param(False, marks=pytest.mark.deep), True], ids=["nchw", "nhwc"])
def test_large_means_and_tiny_variances(small_tiles, last):
    """A difference of sums of squares would have no digit left; nor may a first tile that is far from the others."""
    problem = norm((4, 2, 9, 15), torch.float32, last, activation=IDENTITY)
    x = drawn(problem, 1000.0, 0.01)["x"]
    far = x.clone()
    far[0, :, 0] = 0.0
    for values in (x, x + 1e6, far, laid_out(torch.full(problem.shape, 0.1), last)):
        mean, variance = values.double().mean((0, 2, 3)), values.double().var((0, 2, 3), unbiased=False)
        _, statistics = TRITON[0].forward(problem, values, Parameters(None, None, None, None, MOMENTUM, 1e-12))
        assert relative_error(statistics.mean, mean) <= 1e-7
        found = statistics.invstd.double() ** -2 - 1e-12
        # The mean is rounded to fp32: its square is all that the variance may be off by, besides a few roundings.
        rounded = (mean * 1e-7) ** 2 + 1e-16
        assert bool(((found - variance).abs() <= 1e-5 * variance + rounded).all()), (found, variance)


def test_large_values_end_in_no_nan_and_nan_stays():
    """SiLU and its derivative of values whose exp is infinite, or zero."""
    problem = norm((1, 2, 3, 5), activation=SILU, training=False)
    steps = [-1e30, -1e4, -200.0, -90.0, -88.0, -20.0, -1.0, 0.0, 1.0, 20.0, 88.0, 90.0, 200.0, 1e20, 1e30]
    x = torch.tensor(steps).view(1, 1, 3, 5).repeat(1, 2, 1, 1)
    tensors = drawn(problem) | {"x": x, "grad": torch.ones_like(x), "running_mean": torch.zeros(2)}
    results, exact = computed(TRITON[0], problem, tensors), in_fp64(problem, tensors)
    for name in ("y", "grad_x"):
        assert bool(results[name].isfinite().all())
        torch.testing.assert_close(results[name].double(), exact[name], rtol=1e-5, atol=1e-7)
    problem = norm((2, 2, 3, 3), activation=LEAKY_RELU, slope=0.1)
    tensors = drawn(problem)
    tensors["x"][0, 1, 1, 1] = float("nan")
    p = parameters(problem, tensors)
    y, statistics = TRITON[0].forward(problem, tensors["x"], p)
    assert y.isnan().all(0).all(1).all(1).tolist() == [False, True]
    assert p.running_var.isnan().tolist() == statistics.mean.isnan().tolist() == [False, True]


def test_parameters_in_half_precision(poisoned, small_tiles):
    """As `model.half()` has them: parameters and running statistics, each by itself."""
    problem = norm((3, 2, 9, 11), torch.float16)
    tensors = drawn(problem)
    exact = in_fp64(problem, tensors)
    for halves in (("weight", "bias"), ("running_mean", "running_var"), ("weight", "running_var")):
        results = computed(TRITON[0], problem, tensors | {name: tensors[name].half() for name in halves})
        for name in halves:
            assert results[f"grad_{name}" if name in ("weight", "bias") else name].dtype == torch.float16
        assert all(relative_error(value, exact[name]) <= 2e-3 for name, value in results.items())


def test_statistics_of_another_algorithm_are_taken_and_no_bias_is_needed():
    """The dispatcher does not pass the bias, and without an activation nothing depends on it."""
    problem = norm((3, 4, 5, 5), activation=IDENTITY)
    tensors = drawn(problem)
    exact, p = in_fp64(problem, tensors), parameters(problem, tensors)
    statistics = Statistics(exact["mean"].float(), exact["invstd"].float())
    assert relative_error(TRITON[1].activate(problem, tensors["x"], p, statistics), exact["y"]) <= 2e-6
    grads = TRITON[1].backward(problem, tensors["grad"], tensors["x"], p._replace(bias=None), statistics, ALL)
    for one, name in zip(grads, ("x", "weight", "bias"), strict=True):
        assert relative_error(one, exact[f"grad_{name}"]) <= 4e-6


def test_a_momentum_that_changes_is_not_remembered_for_ever(monkeypatch):
    monkeypatch.setattr(triton_passes, "_MOST_REMEMBERED", 8)
    problem = norm((2, 1, 3, 3))
    tensors, passes = drawn(problem), triton_passes.passes("s", problem)
    for number in range(1, 13):
        p = parameters(problem, tensors, momentum=1 / number)
        TRITON[0].forward(problem, tensors["x"], p)
        expected = torch.lerp(tensors["running_mean"], tensors["x"].mean((0, 2, 3)), 1 / number)
        torch.testing.assert_close(p.running_mean, expected)
    assert len(passes._made) == 8


def test_memory_of_passes_is_what_was_told_shared_and_let_go(small_tiles, monkeypatch):
    """Made once, and all that is made besides results."""
    monkeypatch.setattr(launch.Launch, "__call__", lambda self, *tensors: None)
    asked, inner, rooms = [], torch.empty_like, []
    monkeypatch.setattr(torch, "empty_like", lambda like: (asked.append(like.shape), inner(like))[1])
    for problem in (norm((5, 3, 9, 17)), norm((2, 7, 5, 5)), norm((2, 2**17, 1, 1))):
        tensors, channels = drawn(problem), (problem.channels,)
        p, passes = parameters(problem, tensors), triton_passes.passes("s", problem)
        for _ in range(2):
            asked.clear()
            _, statistics = TRITON[0].forward(problem, tensors["x"], p)
            TRITON[0].backward(problem, tensors["grad"], tensors["x"], p, statistics, ALL)
            assert asked == [channels, channels, problem.shape, channels, channels, problem.shape]
        (room,) = passes._rooms.values()
        assert sum(each.numel() * 4 for each in room) == TRITON[0].workspace_bytes(problem)
        rooms.append(room)
    starts = [room.partial.data_ptr() for room in rooms]
    assert starts[0] == starts[1] == rooms[0].sums.data_ptr()
    assert starts[2] != starts[0]  # it needs more than there was
    for room in rooms:
        assert room.coefficients.data_ptr() >= room.sums.data_ptr() + 4 * room.sums.numel()
        assert room.coefficients.data_ptr() % 16 == 0
    held = [weakref.ref(each) for each in (*triton_passes._shared.values(), *room)]
    del room, rooms[:]
    triton_passes.free_memory()
    assert held
    assert not [each for each in held if each() is not None]
