"""Launches that are repeated: with the tensors of the call, and only where they suit them."""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton import common as triton_common
from yolo_rocm.conv.triton import depthwise as triton_depthwise
from yolo_rocm.conv.triton import gemm as triton_gemm
from yolo_rocm.conv.triton.calls import strides
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton import direct, launch
from yolo_rocm.engines.triton.available import NVIDIA, WMMA
from yolo_rocm.engines.triton.call import Call

STREAM = 77
BY_TRITON, REPEATED = 1.0, 2.0


class Machine:
    """Kernels that write who has launched them into the first number of their result."""

    def __init__(self) -> None:
        self.by_triton: list[Call] = []
        self.repeated: list[tuple] = []
        self.device = -1  # what `get_device` says of a tensor on a CPU

    def kernel_of(self, call: Call):
        """Return something that is launched as Triton's kernels are."""

        def first(*arguments, **options):
            self.by_triton.append(call)
            tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
            tensors[-1][(0,) * tensors[-1].dim()] = BY_TRITON
            assert arguments[len(tensors) :] == call.numbers
            assert options == {**call.constants, "num_warps": call.warps, "num_stages": call.stages}
            return SimpleNamespace(run=self.run, function=call, packed_metadata="packed")

        return {call.grid: first}

    def run(self, *arguments):
        """Launch what is compiled, as Triton's launcher takes it."""
        x, y, z, stream, call, packed, *hooks = arguments[:9]
        assert ((x, y, z), stream, packed, hooks) == (call.grid, STREAM, "packed", [None, None, None])
        rest = (*call.numbers, *call.constants.values())
        assert arguments[len(arguments) - len(rest) :] == rest
        addresses = arguments[9 : len(arguments) - len(rest)]
        kind = ctypes.c_float if not self.half or len(addresses) == 3 else ctypes.c_uint16
        kind.from_address(addresses[-1]).value = REPEATED if kind is ctypes.c_float else 0x4000  # 2.0 in fp16
        self.repeated.append((call, addresses))

    half = False


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    for module in (triton_gemm, triton_common):
        monkeypatch.setattr(module, "family", lambda device: NVIDIA)
    for module in (triton_gemm, triton_depthwise):
        monkeypatch.setattr(module, "processors", lambda device: 4)
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(direct, "triton_version", lambda: (3, 6))
    monkeypatch.setattr(launch, "kernel_of", made.kernel_of)
    monkeypatch.setattr(direct, "current_stream", lambda number: STREAM)
    monkeypatch.setattr(direct, "current_device", lambda: made.device)
    monkeypatch.setattr(direct, "_agrees", lambda *given: True)  # these launches leave their name, no results
    STATE.clear()
    yield made
    STATE.clear()


def problem(dtype=torch.float16, channels_last=True, groups=1):
    shapes = (4, 32, 10, 10), (32, 32 // groups, 3, 3)
    return ConvProblem(*shapes, (1, 1), (1, 1), (1, 1), (0, 0), groups, False, dtype, "cpu", channels_last)


def drawn(p: ConvProblem, shape: tuple[int, ...], odd: bool = False) -> torch.Tensor:
    room = torch.randn(math.prod(shape) + 32).to(p.dtype)
    start = next(n for n in range(17) if (room[n:].data_ptr() % 16 != 0) == odd)
    return room[start:].as_strided(shape, strides(shape, p.channels_last))


def tensors(p: ConvProblem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return drawn(p, p.input_shape), drawn(p, p.weight_shape), drawn(p, p.output_shape)


def first_of(result: torch.Tensor) -> float:
    return float(result.flatten()[0])


ALGORITHMS = [("triton_m", 1), ("triton_rows_m", 1), ("triton_depthwise", 32)]


@pytest.mark.parametrize(("name", "groups"), ALGORITHMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("channels_last", [True, False], ids=["nhwc", "nchw"])
def test_the_second_call_repeats_the_launch(machine, name, groups, dtype, channels_last):
    p = problem(dtype, channels_last, groups)
    machine.half = dtype == torch.float16
    bound = BY_NAME[name].bound(p)
    for number in range(3):
        x, weight, grad = tensors(p)
        y = bound.forward(x, weight, None)
        gx, nothing = bound.backward(grad, x, weight, (True, False))
        neither, gw = bound.backward(grad, x, weight, (False, True))
        assert nothing is neither is None
        expected = BY_TRITON if number == 0 else REPEATED
        results = {p.output_shape: y, p.input_shape: gx, p.weight_shape: gw}
        for shape, result in results.items():
            assert (first_of(result), result.shape, result.dtype) == (expected, shape, dtype)
            assert result.stride() == strides(shape, channels_last)
        if number:
            (_, forward), (_, back), (_, partials), (_, total) = machine.repeated
            assert (forward[0], forward[3]) == (x.data_ptr(), y.data_ptr())
            assert (back[0], back[3]) == (grad.data_ptr(), gx.data_ptr())
            assert partials[:2] == (x.data_ptr(), grad.data_ptr())
            assert (partials[2], gw.data_ptr()) == total
            packed = groups == 1 and (dtype == torch.float32 or not channels_last)
            assert (forward[1] == weight.data_ptr()) != packed
        machine.repeated.clear()
    assert len(machine.by_triton) == 4  # and never again


@pytest.mark.parametrize(("name", "groups"), ALGORITHMS)
def test_a_gradient_in_fp32_is_the_same_launch_and_another_sum(machine, name, groups):
    p = problem(torch.float16, True, groups)
    bound = BY_NAME[name].bound(p)
    for number in range(3):
        x, weight, grad = tensors(p)
        for wanted, dtype in (((False, True), torch.float16), ((False, True, True), torch.float32)):
            machine.half = dtype == torch.float16
            _, gw = bound.backward(grad, x, weight, wanted)
            expected = BY_TRITON if number == 0 else REPEATED
            assert (first_of(gw), gw.dtype, gw.stride()) == (expected, dtype, strides(p.weight_shape, True))
    # Triton has launched the partial sums once, and each of the two sums.
    assert [call.kernel for call in machine.by_triton[1:]] == ["sum_partials"] * 2
    assert machine.by_triton[0].kernel != "sum_partials"


@pytest.mark.parametrize(("name", "groups"), ALGORITHMS)
def test_what_does_not_suit_goes_the_long_way(machine, name, groups):
    p = problem(torch.float32, groups=groups)
    bound = BY_NAME[name].bound(p)

    def passes(x, weight, grad) -> list[float]:
        results = [bound.forward(x, weight, None), *bound.backward(grad, x, weight, (True, True))]
        return [first_of(result) for result in results]

    x, weight, grad = tensors(p)
    assert passes(x, weight, grad) == [BY_TRITON] * 3
    assert passes(x, weight, grad) == [REPEATED] * 3
    odd = drawn(p, p.input_shape, odd=True)
    assert passes(odd, weight, grad) == [BY_TRITON, REPEATED, REPEATED]  # of the last, the sum is repeated
    assert len(machine.by_triton) == 6
    first, for_weight, _, back, *with_odd = machine.by_triton
    assert with_odd == [first, for_weight]

    transposed = drawn(p, p.output_shape).transpose(2, 3)
    passes(x, weight, transposed)
    other_weight, other_back = machine.by_triton[6:]
    assert (other_back.kernel, other_weight.kernel) == (back.kernel, for_weight.kernel)
    assert other_back.numbers != back.numbers
    assert other_weight.numbers != for_weight.numbers
    assert passes(x, weight, transposed) == [REPEATED] * 3
    assert machine.repeated[-3][0] is other_weight  # with the strides it has
    assert machine.repeated[-1][0] is other_back
    assert passes(x, weight, grad) == [REPEATED] * 3
    assert machine.repeated[-3][0] is for_weight
    assert machine.repeated[-1][0] is back


def test_a_kernel_for_odd_addresses_is_not_kept_for_others(machine):
    """It reads element by element."""
    p = problem(torch.float32, groups=32)
    bound = BY_NAME["triton_depthwise"].bound(p)
    _, weight, _ = tensors(p)
    found = [first_of(bound.forward(drawn(p, p.input_shape, odd), weight, None)) for odd in (True, False, False)]
    assert found == [BY_TRITON, BY_TRITON, REPEATED]


def test_a_transposed_copy_is_repeated_too_and_made_once_for_both_gradients(machine):
    p = problem(channels_last=False)
    machine.half = True
    bound = BY_NAME["triton_m_turned"].bound(p)
    for number in range(3):
        x, weight, grad = tensors(p)
        y = bound.forward(x, weight, None)
        gx, gw = bound.backward(grad, x, weight, (True, True))
        for shape, result in {p.output_shape: y, p.weight_shape: gw, p.input_shape: gx}.items():
            assert first_of(result) == (BY_TRITON if number == 0 else REPEATED)
            assert (result.shape, result.stride()) == (shape, strides(shape, False))
        if number:
            (_, of_x), (_, forward), (_, of_grad), (_, of_x_again), (_, partials), _, (_, back) = machine.repeated
            assert (of_x[0], of_grad[0], of_x_again[0]) == (x.data_ptr(), grad.data_ptr(), x.data_ptr())
            assert forward[0] == of_x[1]
            assert partials[:2] == (of_x_again[1], of_grad[1])
            assert back[0] == of_grad[1]
        machine.repeated.clear()
    assert len(machine.by_triton) == 5  # the copy, three passes and a sum
    one = bound.backward(grad, x, weight, (True, False))
    assert one[1] is None
    assert len(machine.repeated) == 2  # the input is not copied for its own gradient


@pytest.mark.parametrize("name", ["triton_m", "triton_m_turned", "triton_flat"])
def test_a_weight_in_the_layout_that_is_read_is_not_copied(machine, monkeypatch, name):
    p, algorithm = problem(channels_last=False), BY_NAME[name]
    machine.half = True
    layout = algorithm.weight_layout(p)
    assert layout == torch.channels_last
    x, weight, grad = tensors(p)
    weight = weight.contiguous(memory_format=layout)
    bound = algorithm.bound(p)
    for _ in range(2):
        machine.repeated.clear()
        bound.forward(x, weight, None)
        bound.backward(grad, x, weight, (True, False))
    read = [addresses[1] for _, addresses in machine.repeated if len(addresses) == 4]
    assert read == [weight.data_ptr()] * 2
    assert algorithm.weight_layout(problem(torch.float32, False)) == torch.preserve_format  # passes read two layouts
    pointwise = replace(p, weight_shape=(32, 32, 1, 1), padding=(0, 0))
    assert algorithm.weight_layout(pointwise) == torch.preserve_format  # there is one


def test_strides_that_never_settle_cost_no_more_than_without(machine, monkeypatch):
    """Where nothing can be repeated, weights are not packed twice every time."""
    monkeypatch.setattr(direct, "triton_version", lambda: (3, 2))
    p, packed = problem(torch.float32), []
    algorithm = BY_NAME["triton_m"]
    inner = algorithm.packed
    monkeypatch.setattr(algorithm, "packed", lambda *a: (packed.append(1), inner(*a))[1])
    bound = algorithm.bound(p)
    x, weight, _ = tensors(p)
    for _ in range(10):
        bound.forward(x, weight, None)
    packed.clear()
    bound.forward(x, weight, None)
    assert len(packed) == 1


def test_another_device_is_not_launched_on(machine):
    p = problem()
    machine.half = True
    bound = BY_NAME["triton_m"].bound(p)
    x, weight, _ = tensors(p)
    bound.forward(x, weight, None)
    assert first_of(bound.forward(x, weight, None)) == REPEATED
    machine.device = 3
    again = launch.repeating(BY_NAME["triton_m"].key(p, "forward", x.stride(), weight.stride()))
    assert not again(-1, 0, 16, 32, 48)
    assert len(machine.repeated) == 1


@pytest.fixture
def tf32():
    before = torch.backends.cuda.matmul.allow_tf32
    yield lambda allowed: setattr(torch.backends.cuda.matmul, "allow_tf32", allowed)
    torch.backends.cuda.matmul.allow_tf32 = before


def test_tf32_is_asked_every_time(machine, tf32):
    p = problem(torch.float32)
    bound = BY_NAME["triton_m"].bound(p)
    x, weight, grad = tensors(p)
    for allowed in (False, True):
        tf32(allowed)
        bound.forward(x, weight, None)
        bound.backward(grad, x, weight, (True, True))
    precisions = [call.constants["PRECISION"] for call in machine.by_triton if "PRECISION" in call.constants]
    assert precisions == ["ieee"] * 3 + ["tf32"] * 3


def test_cards_without_tf32_are_not_asked(machine, monkeypatch):
    """Reading the setting takes longer than a launch."""
    monkeypatch.setattr(triton_common, "family", lambda device: WMMA)
    monkeypatch.setattr(triton_common, "tf32_allowed", lambda: pytest.fail("asked"))
    p = problem(torch.float32)
    bound = BY_NAME["triton_m"].bound(p)
    x, weight, grad = tensors(p)
    for _ in range(2):
        bound.forward(x, weight, None)
        bound.backward(grad, x, weight, (True, True))
    assert {call.constants["PRECISION"] for call in machine.by_triton if "PRECISION" in call.constants} == {"ieee"}


def test_a_bias_is_added(machine):
    p = problem()
    machine.half = True
    bound = BY_NAME["triton_m"].bound(p)
    x, weight, _ = tensors(p)
    bound.forward(x, weight, None)
    bias = torch.ones(48, dtype=p.dtype)[:32]
    bound.forward(x, weight, bias)
    bound.forward(x, weight, bias)
    assert [call.constants["BIAS"] for call in machine.by_triton] == [False, True]
    call, addresses = machine.repeated[-1]
    assert call.constants["BIAS"]
    assert addresses[2] == bias.data_ptr()


def test_where_launches_cannot_be_repeated_none_is(machine, monkeypatch):
    """Before Triton 3.3 compiled kernels take other arguments."""
    monkeypatch.setattr(direct, "triton_version", lambda: (3, 2))
    p = problem()
    bound = BY_NAME["triton_m"].bound(p)
    x, weight, grad = tensors(p)
    for _ in range(3):
        bound.forward(x, weight, None)
        bound.backward(grad, x, weight, (True, True))
    assert len(machine.by_triton) == 12
    assert not machine.repeated
