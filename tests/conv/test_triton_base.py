"""Passes of Triton's algorithms: launched again with the tensors of the call, and only where that suits them."""

from __future__ import annotations

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

from .cases import conv

STREAM = 77
ALGORITHMS = pytest.mark.parametrize(
    ("name", "groups"), [("triton_m", 1), ("triton_rows_m", 1), ("triton_depthwise", 32)]
)


class Machine:
    """Launches, which compute nothing: by Triton, and repeated, each with the addresses of its tensors."""

    def __init__(self) -> None:
        self.by_triton: list[Call] = []
        self.repeated: list[tuple[Call, tuple[int, ...]]] = []

    def kernel_of(self, call: Call):
        """Return something that is launched as Triton's kernels are."""

        def first(*arguments, **options):
            self.by_triton.append(call)
            assert tuple(each for each in arguments if not isinstance(each, torch.Tensor)) == call.numbers
            assert options == call.options
            return SimpleNamespace(run=self.run, function=call, packed_metadata="packed")

        return {call.grid: first}

    def run(self, *arguments):
        """Launch what is compiled, as Triton's launcher takes it."""
        x, y, z, stream, call, packed, *hooks = arguments[:9]
        assert ((x, y, z), stream, packed, hooks) == (call.grid, STREAM, "packed", [None, None, None])
        rest = (*call.numbers, *call.constants.values())
        assert arguments[len(arguments) - len(rest) :] == rest
        self.repeated.append((call, arguments[9 : len(arguments) - len(rest)]))

    def launched(self, *calls) -> tuple[int, int]:
        """Make calls, and return how many launches Triton has made for them and how many were repeated."""
        self.by_triton.clear()
        self.repeated.clear()
        for call in calls:
            call()
        return len(self.by_triton), len(self.repeated)


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    for module in (triton_gemm, triton_common):
        monkeypatch.setattr(module, "family", lambda device: NVIDIA)
    for module in (triton_gemm, triton_depthwise):
        monkeypatch.setattr(module, "processors", lambda device: 4)
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(launch, "kernel_of", made.kernel_of)
    monkeypatch.setattr(direct, "triton_version", lambda: (3, 6))
    monkeypatch.setattr(direct, "current_stream", lambda number: STREAM)
    monkeypatch.setattr(direct, "current_device", lambda: -1)  # what `get_device` says of a tensor on a CPU
    monkeypatch.setattr(direct, "_agrees", lambda *given: True)  # there are no results
    with STATE.replaced():
        yield made


def problem(dtype=torch.float16, channels_last=True, groups=1) -> ConvProblem:
    case = conv((4, 32, 10, 10), 32, (3, 3), (1, 1), (1, 1), groups=groups)
    return replace(case, dtype=dtype, channels_last=channels_last)


def drawn(p: ConvProblem, shape: tuple[int, ...], odd: bool = False) -> torch.Tensor:
    room = torch.randn(math.prod(shape) + 32).to(p.dtype)
    start = next(n for n in range(17) if (room[n:].data_ptr() % 16 != 0) == odd)
    return room[start:].as_strided(shape, strides(shape, p.channels_last))


def tensors(p: ConvProblem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return drawn(p, p.input_shape), drawn(p, p.weight_shape), drawn(p, p.output_shape)


@ALGORITHMS
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("channels_last", [True, False], ids=["nhwc", "nchw"])
def test_the_second_call_repeats_the_launch(machine, name, groups, dtype, channels_last):
    p = problem(dtype, channels_last, groups)
    bound = BY_NAME[name].bound(p)
    for number in range(3):
        machine.repeated.clear()
        x, weight, grad = tensors(p)
        y = bound.forward(x, weight, None)
        gx, nothing = bound.backward(grad, x, weight, (True, False))
        neither, gw = bound.backward(grad, x, weight, (False, True))
        assert nothing is neither is None
        for shape, result in {p.output_shape: y, p.input_shape: gx, p.weight_shape: gw}.items():
            assert (result.shape, result.dtype, result.stride()) == (shape, dtype, strides(shape, channels_last))
        assert (len(machine.by_triton), len(machine.repeated)) == (4, 4 if number else 0)
    (_, forward), (_, back), (_, partials), (_, total) = machine.repeated
    assert (forward[0], forward[3]) == (x.data_ptr(), y.data_ptr())
    assert (back[0], back[3]) == (grad.data_ptr(), gx.data_ptr())
    assert partials[:2] == (x.data_ptr(), grad.data_ptr())
    assert (partials[2], gw.data_ptr()) == total
    packed = groups == 1 and (dtype == torch.float32 or not channels_last)
    assert (forward[1] == weight.data_ptr()) != packed


@ALGORITHMS
def test_a_gradient_in_fp32_is_the_same_launch_and_another_sum(machine, name, groups):
    p = problem(groups=groups)
    bound, (x, weight, grad) = BY_NAME[name].bound(p), tensors(p)
    for wanted, dtype, launches in (
        ((False, True), torch.float16, (2, 0)),
        ((False, True, True), torch.float32, (1, 1)),
        ((False, True, True), torch.float32, (0, 2)),
    ):
        assert machine.launched(lambda wanted=wanted: bound.backward(grad, x, weight, wanted)) == launches
        total = [*machine.by_triton, *(call for call, _ in machine.repeated)][0 if launches == (1, 1) else 1]
        assert total.constants["ROUND"] == (dtype == torch.float32)  # to the values of half precision
        _, gw = bound.backward(grad, x, weight, wanted)
        assert (gw.dtype, gw.stride()) == (dtype, strides(p.weight_shape, True))


@ALGORITHMS
def test_tensors_of_another_kind_get_a_launch_of_their_own(machine, name, groups):
    p = problem(torch.float32, groups=groups)
    bound = BY_NAME[name].bound(p)

    def launched(x, weight, grad):
        return machine.launched(
            lambda: bound.forward(x, weight, None), lambda: bound.backward(grad, x, weight, (True, True))
        )

    x, weight, grad = tensors(p)
    odd, transposed = drawn(p, p.input_shape, odd=True), drawn(p, p.output_shape).transpose(2, 3)
    assert launched(odd, weight, grad) == (4, 0)
    assert launched(x, weight, grad) == (2, 2)  # what was compiled for an odd address is not kept for others
    assert launched(x, weight, grad) == (0, 4)
    usual = [call for call, _ in machine.repeated]
    assert launched(odd, weight, grad) == (2, 2)
    assert launched(x, weight, transposed) == (2, 2)  # forward and the sum are the same
    assert launched(x, weight, transposed) == (0, 4)
    others = [call for call, _ in machine.repeated]
    assert [one.kernel for one in usual] == [other.kernel for other in others]
    assert [one == other for one, other in zip(usual, others, strict=True)] == [True, False, True, False]
    assert launched(x, weight, grad) == (0, 4)
    assert [call for call, _ in machine.repeated] == usual


def test_a_transposed_copy_is_repeated_too_and_made_once_for_both_gradients(machine):
    p = problem(channels_last=False)
    bound = BY_NAME["triton_m_turned"].bound(p)
    for number in range(2):
        x, weight, grad = tensors(p)
        y = bound.forward(x, weight, None)
        gx, gw = bound.backward(grad, x, weight, (True, True))
        for shape, result in {p.output_shape: y, p.weight_shape: gw, p.input_shape: gx}.items():
            assert (result.shape, result.stride()) == (shape, strides(shape, False))
        assert len(machine.by_triton) == 5, number  # the copy, three passes and a sum
    (_, of_x), (_, forward), (_, of_grad), (_, of_x_again), (_, partials), _, (_, back) = machine.repeated[-7:]
    assert (of_x[0], of_grad[0], of_x_again[0]) == (x.data_ptr(), grad.data_ptr(), x.data_ptr())
    assert (forward[0], partials[:2], back[0]) == (of_x[1], (of_x_again[1], of_grad[1]), of_grad[1])
    only_input = machine.launched(lambda: bound.backward(grad, x, weight, (True, False)))
    assert only_input == (0, 2)  # the input is not copied for its own gradient


@pytest.mark.parametrize("name", ["triton_m", "triton_m_turned", "triton_flat"])
def test_a_weight_in_the_layout_that_is_read_is_not_copied(machine, name):
    p, algorithm = problem(channels_last=False), BY_NAME[name]
    assert algorithm.weight_layout(p) == torch.channels_last
    x, weight, grad = tensors(p)
    weight = weight.contiguous(memory_format=torch.channels_last)
    bound = algorithm.bound(p)
    for _ in range(2):
        machine.launched(lambda: bound.forward(x, weight, None), lambda: bound.backward(grad, x, weight, (True, False)))
    read = [addresses[1] for _, addresses in machine.repeated if len(addresses) == 4]
    assert read == [weight.data_ptr()] * 2
    assert algorithm.weight_layout(problem(torch.float32, False)) == torch.preserve_format  # passes read two layouts
    pointwise = replace(p, weight_shape=(32, 32, 1, 1), padding=(0, 0))
    assert algorithm.weight_layout(pointwise) == torch.preserve_format  # there is one


def test_tf32_is_asked_every_time_where_a_card_has_it(machine, monkeypatch):
    bound = BY_NAME["triton_m"].bound(p := problem(torch.float32))
    x, weight, grad = tensors(p)
    for allowed, launches in ((False, 4), (True, 3)):
        monkeypatch.setattr(triton_common, "tf32_allowed", lambda allowed=allowed: allowed)
        backward = lambda: bound.backward(grad, x, weight, (True, True))  # noqa: E731
        assert machine.launched(lambda: bound.forward(x, weight, None), backward)[0] == launches
        precisions = {call.constants.get("PRECISION") for call in machine.by_triton} - {None}
        assert precisions == {"tf32" if allowed else "ieee"}
    monkeypatch.setattr(triton_common, "family", lambda device: WMMA)
    monkeypatch.setattr(triton_common, "tf32_allowed", lambda: pytest.fail("reading it takes longer than a launch"))
    bound.forward(x, weight, None)


def test_a_bias_is_added(machine):
    bound = BY_NAME["triton_m"].bound(p := problem())
    x, weight, _ = tensors(p)
    bias = torch.ones(48, dtype=p.dtype)[:32]
    for added in (None, bias, bias):
        bound.forward(x, weight, added)
    assert [call.constants["BIAS"] for call in machine.by_triton] == [False, True]
    ((call, addresses),) = machine.repeated
    assert call.constants["BIAS"]
    assert addresses[2] == bias.data_ptr()
