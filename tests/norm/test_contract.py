"""The contract of BatchNorm's algorithms: torch's as they are, Triton's in its interpreter, hip's as host code."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton.available import missing_reason
from yolo_rocm.engines.trust import checks
from yolo_rocm.engines.trust.record import record_of
from yolo_rocm.norm.activations import gradient
from yolo_rocm.norm.algorithms import BY_NAME
from yolo_rocm.norm.base import Parameters
from yolo_rocm.norm.hip import batch_norm
from yolo_rocm.norm.plan import NORMALISATION, Operands
from yolo_rocm.norm.problem import ACTIVATIONS, LEAKY_RELU, RELU, SILU
from yolo_rocm.norm.triton import algorithm as triton
from yolo_rocm.norm.triton import passes as triton_passes
from yolo_rocm.norm.triton.tiles import Tile

from ..conv.hip import on_host
from ..engines.contract import Allocations
from ..interpreted import interpreter
from .calls import CONTRACT, DTYPES, SHAPES, exact, made

SOURCE = Path(batch_norm.__file__).with_name("batch_norm.hip.cpp")
ALL = (True, True, True)
# Of several parts for the engine's tiles.
MANY_PARTS = {"hip_norm": (3, 8, 72, 72)}


@pytest.fixture(scope="module")
def interpreting():
    with interpreter():
        yield


@pytest.fixture
def engine(request, monkeypatch):
    """Kernels run on a CPU that is said to have some processors; tiles have few values."""
    name = request.param
    if name == "hip_norm":
        if on_host.COMPILER is None:
            pytest.skip("no C++ compiler")

        def launch_of(problem, kernel, grid, tensors, *numbers):
            return on_host.bound(on_host.compiled(SOURCE, batch_norm.defines_of(problem))[kernel], grid, 256, numbers)

        monkeypatch.setattr(batch_norm, "launch_of", launch_of)
        monkeypatch.setattr(batch_norm, "device_reason", lambda device: None)
        monkeypatch.setattr(batch_norm, "processors", lambda device: 3)
    elif name != "torch":
        if missing_reason() is not None:
            pytest.skip(str(missing_reason()))
        request.getfixturevalue("interpreting")
        tiles = {"triton_s": Tile(64, 1024, 1), "triton_one": Tile(256, 1024, 1, whole=True)}
        monkeypatch.setattr(triton_passes, "tile", lambda family, size: tiles[f"triton_{size}"])
        monkeypatch.setattr(triton_passes, "processors", lambda device: 4)
    with STATE.replaced():
        yield BY_NAME[name]


KERNELS = ("triton_s", "triton_one", "hip_norm")
each_engine = pytest.mark.parametrize("engine", ["torch", *KERNELS], indirect=True)
each_kernel = pytest.mark.parametrize("engine", KERNELS, indirect=True)


def case(number: int, training: bool | None = None):
    """Return a shape with layout, data type and activation, which take turns, each at its own pace."""
    shape, activation = list(SHAPES.values())[number % len(SHAPES)], ACTIVATIONS[(number + 1) % 4]
    last = number % 2 == 1 and len(shape) in (4, 5)
    training = number % 5 != 2 if training is None else training
    dtype = DTYPES[number // 2 % 3]
    return made(shape, dtype, channels_last=last, training=training, activation=activation)


def shape_of(algorithm):
    return MANY_PARTS.get(algorithm.name, (5, 2, 7, 11))


def parameters(problem, operands, **changes) -> Parameters:
    return Operands(*operands).parameters(problem)._replace(**changes)


@pytest.mark.parametrize("name", ["torch", "aten"])
def test_torch(poisoned, name):
    """Every shape, data type, layout and activation, in training and in eval mode."""
    algorithm, tried = BY_NAME[name], 0
    if name == "aten" and algorithm.not_supported_reasons(made()):
        pytest.skip("this torch gives no way to its kernels")
    for number, (shape, dtype, training) in enumerate(
        product(SHAPES.values(), (torch.float64, *DTYPES), (True, False))
    ):
        for last in (False, True) if len(shape) in (4, 5) else (False,):
            activation = ACTIVATIONS[(number // 3 + last) % 4]
            problem = made(shape, dtype, channels_last=last, training=training, activation=activation)
            CONTRACT.check_values(algorithm, replace(problem, affine=number % 7 > 0))
            tried += 1
    assert tried > 120


NUMBERS = [pytest.param(n, marks=[pytest.mark.deep] * (n > 4)) for n in range(20)]


@pytest.mark.parametrize("number", NUMBERS)
@each_kernel
def test_kernels(poisoned, engine, number):
    CONTRACT.check_values(engine, case(number))


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@each_engine
def test_sums_of_several_parts_have_an_order(poisoned, engine, last):
    problem = made(shape_of(engine), channels_last=last, activation=SILU)
    if engine.name == "triton_s":
        parts = triton_passes.passes("s", problem)._parts
        assert parts.parts > 2
        assert parts.tiles % parts.part_tiles  # the last one is shorter
    elif engine.name == "hip_norm":
        assert batch_norm.HipPasses(problem).parts > 1
    CONTRACT.check_order(engine, problem)
    CONTRACT.check_values(engine, problem, operands=Operands.of(problem, mean_of_input=30.0))


@each_engine
def test_large_means_and_tiny_variances(engine):
    """A difference of sums of squares would have no digit left; nor may a first tile that is far from the others."""
    for last in (False, True):
        problem = made(shape_of(engine), channels_last=last)
        x = (Operands.of(problem).x - 0.5) * 0.01 + 1000.0
        far, single = x.clone(), x * 0.01 - 10.0
        far[0, :, 0], single[0, :, 0, 0] = 0.0, 1e4
        for values in (x, x + 1e6, far, single, torch.full_like(x, 0.1)):
            mean, variance = values.double().mean((0, 2, 3)), values.double().var((0, 2, 3), unbiased=False)
            _, statistics = engine.forward(problem, values, Parameters(None, None, None, None, 0.1, 1e-12))
            assert bool(((statistics.mean - mean).abs() <= 2e-7 * (mean.abs() + variance.sqrt())).all())
            found = statistics.invstd.double() ** -2 - 1e-12
            # The mean is rounded to fp32: its square is all that the variance may be off by, besides a few roundings.
            rounded = (mean * 1.5e-7) ** 2 + 1e-16
            assert bool(((found - variance).abs() <= 2e-5 * variance + rounded).all()), (found, variance)


@each_engine
def test_layers_that_have_less(poisoned, engine):
    """Without parameters, and without running statistics; in eval mode those are what counts."""
    for training, affine in ((True, False), (False, True), (False, False)):
        CONTRACT.check_values(engine, made((4, 2, 9, 11), channels_last=affine, training=training, affine=affine))
    problem = made((4, 2, 9, 11))
    operands = Operands.of(problem)
    y, statistics = engine.forward(problem, operands.x, parameters(problem, operands))
    less = parameters(problem, operands, running_mean=None, running_var=None)
    again, same = engine.forward(problem, operands.x, less)
    assert all(map(torch.equal, (y, *statistics), (again, *same)))


@each_engine
def test_parameters_in_half_precision(poisoned, engine):
    """As `model.half()` has them: parameters and running statistics, each by itself."""
    problem = made((3, 2, 9, 12), torch.float16)
    o = Operands.of(problem)
    right = exact(problem, "forward", o), exact(problem, "backward", o)
    for halves in (("weight", "bias"), ("running_mean", "running_var"), ("weight", "bias", "running_var")):
        p = parameters(problem, o)
        p = p._replace(**{name: getattr(p, name).half() for name in halves})
        y, statistics = engine.forward(problem, o.x, p)
        grads = engine.backward(problem, o.grad, o.x, p, statistics, ALL)
        assert (grads.weight.dtype, grads.bias.dtype) == (p.weight.dtype, p.bias.dtype)
        found = [y, *statistics, p.running_mean, p.running_var], [*grads]
        for parts, values in zip(found, right, strict=True):
            ours = torch.cat([part.flatten().double() for part in parts])
            torch.testing.assert_close(ours, values[: len(ours)], rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("training", [True, False], ids=["batch statistics", "running statistics"])
@each_engine
def test_gradients_that_are_not_wanted(engine, training):
    problem = made((4, 1, 9, 11), training=training, activation=SILU)
    o = Operands.of(problem)
    p = parameters(problem, o)
    _, statistics = engine.forward(problem, o.x, p)
    everything = engine.backward(problem, o.grad, o.x, p, statistics, ALL)
    for wanted in product((False, True), repeat=3):
        grads = engine.backward(problem, o.grad, o.x, p, statistics, wanted)
        for one, other, want in zip(grads, everything, wanted, strict=True):
            assert torch.equal(one, other) if want else one is None


@each_engine
def test_large_values_end_in_no_nan_and_nan_stays(engine):
    """SiLU and its derivative of values whose exp is infinite, or zero."""
    problem = made((1, 2, 3, 5), activation=SILU, training=False)
    steps = [-1e30, -1e4, -200.0, -90.0, -88.0, -20.0, -1.0, 0.0, 1.0, 20.0, 88.0, 90.0, 200.0, 1e20, 1e30]
    x = torch.tensor(steps).view(1, 1, 3, 5).repeat(1, 2, 1, 1)
    o = Operands.of(problem)._replace(x=x, grad=torch.ones_like(x), running_mean=torch.zeros(2), mean=torch.zeros(2))
    for which in NORMALISATION.passes:
        found, right = NORMALISATION.run(engine, problem, which, o)[:30], exact(problem, which, o)[:30]
        assert bool(found.isfinite().all())
        torch.testing.assert_close(found.double(), right, rtol=1e-5, atol=1e-7)
    problem = made((2, 2, 3, 3), activation=LEAKY_RELU)
    o = Operands.of(problem)
    o.x[0, 1, 1, 1] = float("nan")
    p = parameters(problem, o)
    y, statistics = engine.forward(problem, o.x, p)
    assert y.isnan().all(0).all(1).all(1).tolist() == [False, True]
    assert p.running_var.isnan().tolist() == statistics.mean.isnan().tolist() == [False, True]


def test_what_a_relu_has_cut_off_gets_no_part_of_an_infinite_gradient():
    z, grad = torch.tensor([[-1.0, 2.0]]), torch.full((1, 2), float("inf"))
    assert gradient(made((1, 2), activation=RELU), grad, z).tolist() == [[0.0, float("inf")]]


@each_kernel
def test_the_workspace_is_what_was_told(engine):
    """Counted: all memory that a pass takes besides its results."""
    for last in (False, True):
        problem = made(shape_of(engine), channels_last=last, activation=SILU)
        o = Operands.of(problem)
        p = parameters(problem, o)
        whole, channels = math.prod(problem.shape) * 4, problem.channels * 4
        with Allocations() as forward:
            _, statistics = engine.forward(problem, o.x, p)
        with Allocations() as backward:
            engine.backward(problem, o.grad, o.x, p, statistics, ALL)
        for seen in (forward, backward):
            assert 0 <= sum(seen.sizes) - whole - 2 * channels <= engine.workspace_bytes(problem), seen.sizes


def test_the_workspace_of_torch_does_not_grow_with_the_batch():
    small, large = (BY_NAME["torch"].workspace_bytes(made((n, 16, 320, 320))) for n in (16, 64))
    assert small == large


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES], ids=str)
def test_torch_computes_the_same_in_pieces(monkeypatch, dtype):
    problem = made((5, 4, 6, 6), dtype, channels_last=dtype == torch.float64, activation=SILU)
    operands = Operands.of(problem, mean_of_input=2.0)
    whole = [NORMALISATION.run(BY_NAME["torch"], problem, which, operands) for which in NORMALISATION.passes]
    monkeypatch.setattr("yolo_rocm.norm.pytorch._PIECE", 2 * 4 * 36)
    for which, one in zip(NORMALISATION.passes, whole, strict=True):
        CONTRACT.check_values(BY_NAME["torch"], problem, (which,), operands)
        torch.testing.assert_close(NORMALISATION.run(BY_NAME["torch"], problem, which, operands), one)


def test_statistics_of_half_precision_are_those_of_fp32():
    """In fp16 the squares of these would be infinite, and a mean of many would stop growing."""
    for dtype in (torch.float16, torch.bfloat16):
        problem = made((8, 3, 32, 32), dtype)
        o = Operands.of(problem)
        o = o._replace(x=(o.x.float() * 8 + 300).to(dtype))
        _, statistics = BY_NAME["torch"].forward(problem, o.x, parameters(problem, o))
        size = o.x.numel()
        right = exact(problem, "forward", o)[size : size + 6].view(2, 3)
        torch.testing.assert_close(torch.stack(statistics).double(), right, rtol=2e-6, atol=0)


def test_what_is_not_supported_says_why(monkeypatch, fresh):
    assert BY_NAME["torch"].not_supported_reasons(made(dtype=torch.int64)) == [
        "dtype torch.int64 is not floating point"
    ]
    for module in (triton, batch_norm):
        monkeypatch.setattr(module, "device_reason", lambda device: None)

    def reasons(name, *shape, dtype=torch.float16):
        return BY_NAME[name].not_supported_reasons(made(shape, dtype, "cuda:0"))

    for name in ("triton_s", "triton_l", "triton_one", "hip_norm"):
        assert all(reasons(name, 2, 3, 4, 4, dtype=dtype) == [] for dtype in DTYPES)
        (why,) = reasons(name, 2, 3, 4, 4, dtype=torch.float64)
        assert why == "dtype torch.float64 is not float32, float16 or bfloat16"
        assert reasons(name, 0, 3, 4, 4) == ["there are no values"]
        assert reasons(name, 1, 1, 1, 2**31 - 4) == []
        assert reasons(name, 1, 1, 1, 2**31) == ["there are more values than 32 bits count"]
    assert reasons("triton_s", 2**16, 2**15, 1, 2)  # planes
    assert reasons("hip_norm", 1, 2, 1, 2**31 - 128)  # all together
    assert not reasons("hip_norm", 1, 2, 1, 2**31 - 129)
    record = record_of("cuda:0")
    record.quarantine("norm", "triton_l", torch.float16, "it failed")
    assert [bool(reasons(name, 2, 3, 4, 4)) for name in KERNELS] == [False] * 3
    assert reasons("triton_l", 2, 3, 4, 4) == ["it failed"]
    record.quarantine("norm", "batch_norm", torch.float16, "it is wrong")
    assert reasons("triton_s", 2, 3, 4, 4) == ["it is wrong"]
    assert not reasons("triton_s", 2, 3, 4, 4, dtype=torch.float32)
    monkeypatch.setattr(triton, "device_reason", lambda device: "there is no GPU")
    assert reasons("triton_s", 2, 3, 4, 4) == ["there is no GPU"]


@pytest.mark.parametrize("engine", ["hip_norm"], indirect=True)
def test_the_kernels_qualify(engine, monkeypatch):
    """On the small problem that a device is tried on before their first use."""
    monkeypatch.setattr(checks, "interpreted", lambda: False)
    for last in (False, True):
        problem = NORMALISATION.small(made((2, 8, 6, 6), channels_last=last), engine.kernel)
        assert engine.not_supported_reasons(problem) == []
        checks.check(NORMALISATION, engine, problem)
        assert record_of("cpu").quarantine_reason("norm", engine.kernel, problem.dtype) is None


@pytest.mark.parametrize("engine", ["triton_s"], indirect=True)
def test_a_momentum_that_changes_is_not_remembered_for_ever(engine, monkeypatch):
    monkeypatch.setattr(triton_passes, "_MOST_REMEMBERED", 8)
    problem = made((2, 1, 3, 3))
    o, passes = Operands.of(problem), triton_passes.passes("s", problem)
    for number in range(1, 13):
        p = parameters(problem, o, momentum=1 / number)
        engine.forward(problem, o.x, p)
        torch.testing.assert_close(p.running_mean, torch.lerp(o.running_mean, o.x.mean((0, 2, 3)), 1 / number))
        assert len(passes._made) <= 8


@pytest.mark.parametrize("engine", ["hip_norm"], indirect=True)
def test_a_momentum_of_each_batch_makes_no_launch_of_hip_of_its_own(engine, monkeypatch):
    """As `momentum=None` has it, which torch.optim.swa_utils.update_bn sets."""
    inner, launches = batch_norm.launch_of, set()
    monkeypatch.setattr(batch_norm, "launch_of", lambda *given: (launches.add(given), inner(*given))[1])
    problem = made((2, 8, 4, 4))
    o = Operands.of(problem)
    for batch in (1, 2, 4):
        p = parameters(problem, o, momentum=1 / batch)
        engine.forward(problem, o.x, p)
        torch.testing.assert_close(p.running_mean, torch.lerp(o.running_mean, o.x.mean((0, 2, 3)), 1 / batch))
    assert len(launches) == 3
