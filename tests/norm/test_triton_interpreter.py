"""BatchNorm in Triton on a CPU, in Triton's interpreter: values, statistics and gradients against fp64."""

from __future__ import annotations

import weakref
from itertools import product

import pytest
import torch
import torch.nn.functional as F

from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.triton import launch
from yolo_rocm.engines.triton.available import missing_reason
from yolo_rocm.norm.base import Statistics
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.problem import ACTIVATIONS, IDENTITY, LEAKY_RELU, SILU, NormProblem
from yolo_rocm.norm.seam import installed
from yolo_rocm.norm.triton import passes as triton_passes
from yolo_rocm.norm.triton.algorithm import TRITON
from yolo_rocm.norm.triton.tiles import SIZES, Tile

from ..interpreted import interpreter
from .cases import Exact, drawn, laid_out, parameters

pytestmark = [
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
    pytest.mark.usefixtures("interpreting"),
]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ALL = (True, True, True)
# What is computed in fp32, relative to its size.
FULL = 2e-6


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


def allowed(problem):
    """Return what values may be off by: roundings in fp32, or that of the result, which the interpreter cuts off."""
    return FULL if problem.dtype == torch.float32 else torch.finfo(problem.dtype).eps


def assert_right(algorithm, problem, x, grad, p, wanted=ALL):
    """Compare everything that is computed with fp64; whatever is computed again has the same bits."""
    assert not algorithm.not_supported_reasons(problem)
    exact = Exact(problem, x, grad, p)
    count = None if p.batches is None else int(p.batches)
    y, statistics = algorithm.forward(problem, x, p)
    grads = algorithm.backward(problem, grad, x, p, statistics, wanted)
    assert (y.dtype, y.shape, y.stride()) == (x.dtype, x.shape, x.stride())
    assert torch.equal(algorithm.activate(problem, x, p, statistics), y)
    errors = {"y": relative_error(y, exact.y) / allowed(problem)}
    for name in ("mean", "invstd"):
        errors[name] = relative_error(getattr(statistics, name), getattr(exact, name)) / FULL
    if p.running_mean is not None and problem.rows > 1:
        errors["running mean"] = relative_error(p.running_mean, exact.running_mean) / FULL
        errors["running variance"] = relative_error(p.running_var, exact.running_var) / FULL
    for name, value, truth, want in zip("xwb", grads, exact.grads, wanted, strict=True):
        assert (value is not None) == (want and truth is not None), name
        if value is not None:
            assert value.shape == truth.shape
            scale = truth.norm().clamp_min(0.1 * grad.double().norm())  # what cancels has no digits
            errors[name] = float((value.double() - truth).norm() / scale) / (allowed(problem) if name == "x" else FULL)
    assert max(errors.values()) <= 1, (algorithm.name, str(problem), errors)
    if count is not None:
        assert int(p.batches) == count + problem.training
    again = algorithm.backward(problem, grad, x, p, statistics, wanted)
    assert all(one is None or torch.equal(one, other) for one, other in zip(grads, again, strict=True))


SHAPES = {
    "square": (2, 5, 7, 9),
    "400 pixels": (2, 3, 20, 20),
    "one pixel": (5, 7, 1, 1),
    "one image": (1, 4, 6, 8),
    "one channel": (3, 1, 5, 4),
    "one value a channel": (1, 3, 1, 1),
    "many channels": (2, 18, 2, 3),
    "no pixels": (6, 5),
    "a row of pixels": (2, 3, 19),
    "three dimensions": (1, 2, 3, 4, 5),
    "16 pixels": (3, 2, 4, 4),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(poisoned, name):
    """Layouts, data types, activations and sizes take turns, each at its own pace."""
    number, shape = list(SHAPES).index(name), SHAPES[name]
    for turn, last in enumerate((False, True) if len(shape) in (4, 5) else (False,)):
        activation = ACTIVATIONS[(number + 2 * turn) % 4]
        problem = norm(shape, DTYPES[(number + turn) % 3], last, activation=activation, slope=0.1)
        x, grad = drawn(problem)
        assert_right(TRITON[(number + turn) % len(SIZES)], problem, x, grad, parameters(problem, count=True))


def each_activation():
    """Return activations and layouts; the layouts take turns, and the other one is deep."""
    for number, (activation, last) in enumerate(product(ACTIVATIONS, (False, True))):
        marks = [] if number // 2 % 2 == last else [pytest.mark.deep]
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
    x, grad = drawn(problem)
    assert_right(TRITON[0], problem, x, grad, parameters(problem, count=True))


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
    x, grad = drawn(problem)
    assert_right(TRITON[-1], problem, x, grad, parameters(problem, count=True))
    assert set(launched) == {"whole_forward", "activate", "whole_backward"}
    STATE.clear()


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("parts", [False, True], ids=["one part", "parts"])
def test_layers_that_have_less(poisoned, request, last, parts):
    """Without parameters, without running statistics, and with those in place of the batch's."""
    if parts:
        request.getfixturevalue("small_tiles")
    for training, affine, track in (
        (True, False, True),
        (True, True, False),
        (False, True, True),
        (False, False, True),
    ):
        problem = norm((4, 2, 9, 11), torch.float32, last, training, affine)
        x, grad = drawn(problem)
        p = parameters(problem, track=track)
        before = None if not track else (p.running_mean.clone(), p.running_var.clone())
        assert_right(TRITON[0], problem, x, grad, p)
        if before is not None and not training:
            assert torch.equal(p.running_mean, before[0])
            assert torch.equal(p.running_var, before[1])


@pytest.mark.parametrize("training", [True, False], ids=["batch statistics", "running statistics"])
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
    x, grad = drawn(problem)
    p, launched = parameters(problem), []
    inner = launch.kernel_of
    monkeypatch.setattr(launch, "kernel_of", lambda call: launched.append(call.kernel) or inner(call))
    _, statistics = TRITON[0].forward(problem, x, p)
    for wanted in product((False, True), repeat=3):
        launched.clear()
        TRITON[0].backward(problem, grad, x, p, statistics, wanted)
        sums = wanted[1] or wanted[2] or (wanted[0] and training)
        expected = ["partial_gradients", "combine_gradients"] if sums else []
        assert launched == expected + (["input_gradient"] if wanted[0] else [])
        if wanted in ((True, False, False), (False, True, False)):
            assert_right(TRITON[0], problem, x, grad, parameters(problem), wanted)


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
def test_large_means_and_tiny_variances(small_tiles, last):
    """A difference of sums of squares would have no digit left; nor may a first tile that is far from the others."""
    problem = norm((4, 2, 9, 15), torch.float32, last, activation=IDENTITY)
    p = parameters(problem, eps=1e-12)
    x, grad = drawn(problem, mean=1000.0, deviation=0.01)
    far = x.clone()
    far[0, :, 0] = 0.0
    for values in (x, x + 1e6, far, laid_out(problem, torch.full(problem.shape, 0.1))):
        exact = Exact(problem, values, grad, p._replace(running_mean=None, running_var=None))
        _, statistics = TRITON[0].forward(problem, values, p)
        variance = exact.invstd**-2
        assert relative_error(statistics.mean, exact.mean) <= 1e-7
        found = statistics.invstd.double() ** -2
        # The mean is rounded to fp32: its square is all that the variance may be off by, besides a few roundings.
        rounded = (exact.mean * 1e-7) ** 2
        assert bool(((found - variance).abs() <= 1e-5 * variance + rounded).all()), (found, variance)


def test_large_values_end_in_no_nan():
    """SiLU and its derivative of values whose exp is infinite, or zero."""
    problem = norm((1, 2, 4, 4), activation=SILU, training=False)
    p = parameters(problem)
    p.running_mean.zero_()
    p.running_var.fill_(1.0)
    steps = torch.tensor(
        [-1e30, -1e4, -200.0, -90.0, -88.0, -20.0, -1.0, 0.0, 1.0, 20.0, 88.0, 90.0, 200.0, 1e4, 1e20, 1e30]
    )
    x = steps.view(1, 1, 4, 4).repeat(1, 2, 1, 1)
    y, statistics = TRITON[0].forward(problem, x, p)
    grads = TRITON[0].backward(problem, torch.ones_like(x), x, p, statistics, ALL)
    assert bool(torch.isfinite(y).all())
    exact = Exact(problem, x, torch.ones_like(x), p)
    torch.testing.assert_close(y.double(), exact.y, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(grads.x.double(), exact.grads.x, rtol=1e-5, atol=1e-7)


def test_nan_stays_nan():
    problem = norm((2, 2, 3, 3), activation=LEAKY_RELU, slope=0.1)
    x, _ = drawn(problem)
    x[0, 1, 1, 1] = float("nan")
    p = parameters(problem)
    y, statistics = TRITON[0].forward(problem, x, p)
    assert y.isnan().all(0).all(1).all(1).tolist() == [False, True]
    assert p.running_var.isnan().tolist() == [False, True]
    assert statistics.mean.isnan().tolist() == [False, True]


@pytest.mark.parametrize("small", [False, True], ids=["one part", "parts"])
def test_parameters_in_half_precision(poisoned, request, small):
    """As `model.half()` has them: parameters and running statistics, each by itself."""
    if small:
        request.getfixturevalue("small_tiles")
    problem = norm((3, 2, 9, 11), torch.float16)
    x, grad = drawn(problem)
    exact = Exact(problem, x, grad, parameters(problem))
    for halves in ((0, 1), (2, 3), (0, 3)):
        full = parameters(problem)
        p = full._replace(**{full._fields[place]: full[place].half() for place in halves})
        y, statistics = TRITON[0].forward(problem, x, p)
        grads = TRITON[0].backward(problem, grad, x, p, statistics, ALL)
        assert [g.dtype for g in grads[1:]] == [p.weight.dtype, p.bias.dtype]
        assert relative_error(y, exact.y) <= 1e-3
        for one, other in zip(
            (*grads, p.running_mean, p.running_var), (*exact.grads, exact.running_mean, exact.running_var), strict=True
        ):
            assert relative_error(one, other) <= 1e-3


def test_backward_without_the_bias():
    """The dispatcher does not pass it, and without an activation nothing depends on it."""
    problem = norm((3, 4, 5, 5), activation=IDENTITY)
    x, grad = drawn(problem)
    p = parameters(problem)
    _, statistics = TRITON[0].forward(problem, x, p)
    expected = TRITON[0].backward(problem, grad, x, p, statistics, ALL)
    found = TRITON[0].backward(problem, grad, x, p._replace(bias=None), statistics, ALL)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


def test_statistics_of_another_algorithm_are_taken():
    problem = norm((3, 4, 5, 5))
    x, grad = drawn(problem)
    p = parameters(problem)
    exact = Exact(problem, x, grad, p)
    statistics = Statistics(exact.mean.float(), exact.invstd.float())
    assert relative_error(TRITON[1].activate(problem, x, p, statistics), exact.y) <= FULL
    grads = TRITON[1].backward(problem, grad, x, p, statistics, ALL)
    for one, other in zip(grads, exact.grads, strict=True):
        assert relative_error(one, other) <= FULL


def test_a_momentum_that_changes_is_not_remembered_for_ever(monkeypatch):
    monkeypatch.setattr(triton_passes, "_MOST_REMEMBERED", 8)
    problem = norm((2, 1, 3, 3))
    x, grad = drawn(problem)
    passes = triton_passes.passes("s", problem)
    for number in range(1, 13):
        assert_right(TRITON[0], problem, x, grad, parameters(problem, momentum=1 / number))
    assert len(passes._made) == 8


def test_workspace_is_what_a_pass_keeps(small_tiles, monkeypatch):
    """Made once, and all that is made besides results."""
    monkeypatch.setattr(launch.Launch, "__call__", lambda self, *tensors: None)
    problem = norm((5, 3, 9, 17))
    x, grad = drawn(problem)
    asked, inner = [], torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda like: (asked.append(like.shape), inner(like))[1])
    p, passes = parameters(problem), triton_passes.passes("s", problem)
    for _ in range(2):
        asked.clear()
        _, statistics = TRITON[0].forward(problem, x, p)
        TRITON[0].backward(problem, grad, x, p, statistics, ALL)
        assert asked == [(3,), (3,), x.shape, (3,), (3,), x.shape]
    (room,) = passes._rooms.values()
    assert sum(each.numel() * 4 for each in room) == TRITON[0].workspace_bytes(problem)


def test_passes_of_a_thread_share_their_memory(small_tiles, monkeypatch):
    monkeypatch.setattr(launch.Launch, "__call__", lambda self, *tensors: None)
    rooms = []
    for problem in (norm((5, 3, 9, 17)), norm((2, 7, 5, 5)), norm((2, 2**17, 1, 1))):
        TRITON[0].forward(problem, drawn(problem)[0], parameters(problem))
        (room,) = triton_passes.passes("s", problem)._rooms.values()
        rooms.append(room)
    starts = [room.partial.data_ptr() for room in rooms]
    assert starts[0] == starts[1] == rooms[0].sums.data_ptr()
    assert starts[2] != starts[0]  # it needs more than there was
    for room in rooms:
        assert room.coefficients.data_ptr() >= room.sums.data_ptr() + 4 * room.sums.numel()
        assert room.coefficients.data_ptr() % 16 == 0


def test_memory_of_passes_can_be_let_go(small_tiles):
    problem = norm((5, 3, 9, 17))
    x, grad = drawn(problem)
    assert_right(TRITON[0], problem, x, grad, parameters(problem))
    (room,) = triton_passes.passes("s", problem)._rooms.values()
    held = [weakref.ref(each) for each in (*triton_passes._shared.values(), *room)]
    del room
    triton_passes.free_memory()
    assert held
    assert not [each for each in held if each() is not None]
    assert_right(TRITON[0], problem, x, grad, parameters(problem))
