"""Steps of a grad-weight: which pixels each of them has, and that the kernels add up these and no others."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
import torch

from tools.exactness import allowed_error, in_doubles, native_passes
from yolo_rocm.conv.plan import Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton import calls
from yolo_rocm.conv.triton import steps as kernel_steps
from yolo_rocm.conv.triton.calls import Dot, strides
from yolo_rocm.conv.triton.steps import Steps, steps
from yolo_rocm.conv.triton.tiles import Tile, tiles
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.triton.available import FAMILIES, NVIDIA, missing_reason
from yolo_rocm.engines.triton.launch import kernel_of

from ..interpreted import interpreter
from ..tables import each_row
from .cases import conv as case

SMALL = Tile(16, 16, 16, rectangles=True)
with_triton = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))


def conv(size, kernel=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), channels=4, out_channels=8, **rest):
    last = rest.pop("last", False)
    problem = case((2, channels, *size), out_channels, kernel, stride, padding, dilation, **rest)
    return replace(problem, channels_last=last)


def cut(problem: ConvProblem, tile: Tile = SMALL) -> Steps:
    by = (strides(shape, problem.channels_last) for shape in (problem.output_shape, problem.input_shape))
    return steps(problem, *by, tile)


def test_amd_takes_rectangles_and_nvidia_what_was_timed_there():
    for family, half in product(FAMILIES, (False, True)):
        known = tiles(family, half)
        weight = (*known.weight.values(), *known.rows.values())
        assert {tile.rectangles for tile in weight} == {family != NVIDIA}
        assert not any(tile.rectangles for tile in (*known.gather.values(), known.flat))


LAYERS = {
    # rows and columns -> columns of a rectangle of 16 pixels, whether none reaches over an edge, unit
    (80, 80): (16, True, 4),
    (20, 20): (4, True, 4),
    (20, 12): (4, True, 4),
    (15, 12): (4, False, 4),
    (19, 19): (4, False, 1),
    (13, 13): (16, False, 1),
    (5, 5): (0, False, 1),
}


@each_row("size", LAYERS)
def test_rectangles_cover_a_layer_with_little_to_spare(size):
    found = cut(conv(size))
    assert (found.width, found.even, found.unit) == LAYERS[size]
    assert (found.out_size, found.src_size) == (size, size)
    assert 2 * math.prod(size) <= found.pixels <= 1.4 * 2 * math.prod(size)
    assert cut(conv(size), replace(SMALL, rectangles=False)) == Steps(2 * math.prod(size), size, size)


def test_channels_last_gains_less_and_spares_less():
    assert cut(conv((20, 20), last=True))[3:] == (4, True, 1)
    assert cut(conv((19, 19), last=True)).width == 0
    assert cut(conv((39, 39), last=True))[3:] == (8, False, 1)


def test_rows_of_a_pointwise_layer_are_one_row():
    pointwise = {"kernel": (1, 1), "padding": (0, 0)}
    assert cut(conv((19, 19), **pointwise)) == Steps(2 * 368, (1, 361), (1, 361), 16, False, 1)
    assert cut(conv((20, 20), **pointwise)) == Steps(2 * 400, (1, 400), (1, 400), 16, True, 4)
    for other in ({"padding": (1, 0)}, {"stride": (1, 2)}, {"kernel": (1, 3)}):
        problem = conv((20, 20), **{**pointwise, **other})
        assert cut(problem).out_size == problem.output_size
    problem = conv((20, 20), **pointwise)
    whole, sliced = strides(problem.output_shape, False), (4 * 20 * 24, 20 * 24, 24, 1)
    assert steps(problem, whole, sliced, SMALL).out_size == (20, 20)
    assert steps(problem, sliced, whole, SMALL).out_size == (20, 20)


def test_strides_are_multiples_of_the_unit():
    """A gradient that is a slice of something else, or the same number everywhere."""
    problem = conv((20, 20))
    x, whole = strides(problem.input_shape, False), strides(problem.output_shape, False)
    assert steps(problem, whole, x, SMALL).unit == 4
    for place in range(3):
        odd = tuple(by + 2 * (place == i) for i, by in enumerate(whole))
        assert steps(problem, odd, x, SMALL).unit == 1
    assert steps(problem, (0, 0, 0, 0), x, SMALL).unit == 1
    assert cut(conv((24, 21), padding=(1, 0))).unit == 1  # 19 columns


@pytest.fixture(scope="module")
def interpreting():
    with interpreter():
        yield


def weight_gradient(problem: ConvProblem, operands: Operands, tile: Tile, rows: bool) -> tuple[torch.Tensor, dict]:
    """Run the kernel alone, add up its partial sums, and return them with its constants."""
    x, grad = operands.x, operands.grad
    call, splits = calls.grad_weight(problem, grad.stride(), x.stride(), tile, Dot(upcast=True), 1, rows)
    channels = problem.in_channels // problem.groups
    partial = torch.full((splits, problem.out_channels, *problem.kernel, channels), float("nan"))
    kernel_of(call)[call.grid](x, grad, partial, *call.numbers, **call.options)
    return partial.sum(0).permute(0, 3, 1, 2), call.constants


def framed(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same values in a tensor that has NaN all around them: what is read beyond an edge is seen."""
    frame = torch.full([n + 2 for n in tensor.shape], float("nan"))
    if not tensor.is_contiguous():
        frame = frame.contiguous(memory_format=torch.channels_last)
    return frame[1:-1, 1:-1, 1:-1, 1:-1].copy_(tensor)


# The even ones leave nothing to spare; by rectangles or in order, rows at once or not, in NCHW or channels_last.
EDGES = {
    "even": (conv((4, 8)), True, False),
    "even, rows of a rectangle apart": (conv((4, 12), (1, 3), padding=(0, 1), last=True), True, True),
    "three by two rectangles": (conv((7, 11), (2, 3), channels=16), True, True),
    "stride 2": (conv((13, 15), (2, 3), stride=(2, 2), last=True), True, False),
    "unequal strides, dilated": (conv((6, 17), (2, 3), (1, 2), (1, 3), (2, 1)), True, True),
    "no padding": (conv((7, 10), (3, 2), padding=(0, 0), last=True), True, False),
    "groups": (conv((8, 7), (2, 3), out_channels=6, groups=2), True, False),
    "groups, in order": (conv((8, 7), (2, 3), out_channels=6, groups=2), False, True),
    "more channels than a tile": (conv((4, 7), (1, 3), padding=(0, 1), channels=18, out_channels=17), True, True),
    "pointwise": (conv((7, 9), (1, 1), padding=(0, 0)), True, False),
    "a few pixels": (conv((2, 3), last=True), True, False),
}


@with_triton
@pytest.mark.usefixtures("interpreting")
@pytest.mark.parametrize("name", EDGES)
def test_every_pixel_counts_once(monkeypatch, name):
    """As exact as a plain sum, with as much to spare as there may be."""
    monkeypatch.setattr(kernel_steps, "_MOST_PIXELS", {True: 16.0, False: 16.0})
    problem, rectangles, rows = EDGES[name]
    operands = Operands.of(problem)
    exact = native_passes(problem, in_doubles(operands))["grad_weight"]
    operands = Operands(framed(operands.x), operands.weight, framed(operands.grad))
    result, constants = weight_gradient(problem, operands, replace(SMALL, rectangles=rectangles), rows)
    assert relative_error(result, exact) <= allowed_error(problem, "grad_weight")
    assert (constants["STEP_W"] > 0) == rectangles
    assert constants["EVEN"] == name.startswith("even")


@with_triton
@pytest.mark.usefixtures("interpreting")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize(("rectangles", "int64"), [(True, True), (True, False), (False, True)])
def test_what_is_beyond_the_edge_of_the_output_is_not_multiplied(monkeypatch, rectangles, int64):
    """The first tap of a row never meets the last two columns of the input, although a rectangle reaches there."""
    monkeypatch.setattr(calls, "needs_int64", lambda *tensors: int64)
    problem = conv((4, 15), (1, 3), padding=(0, 0), channels=16)
    operands = Operands.of(problem)
    operands.x[..., -2:] = float("inf")
    for rows in (False, True):
        result, constants = weight_gradient(problem, operands, replace(SMALL, rectangles=rectangles), rows)
        assert (constants["STEP_W"], constants["INT64"]) == (16 * rectangles, int64)
        assert result[..., 0].isfinite().all()
        assert not result[..., 1:].isfinite().any()
