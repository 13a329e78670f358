"""The kernels of convolutions in the table of compiled kernels: which there are, and the layers they are for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import torch

from tools.kernel import DTYPES, Kernel
from yolo_rocm.conv.launched import Strides
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton import calls
from yolo_rocm.conv.triton.calls import Dot, strides
from yolo_rocm.conv.triton.tiles import FLAT, INFERENCE_SIZES, ROW_SIZES, SIZES, Tiles, block, inference_tile, tiles
from yolo_rocm.engines.activations import SILU
from yolo_rocm.engines.triton.available import FMA, amd_family
from yolo_rocm.engines.triton.call import Call

_DEPTHWISE: Final = (3, 5, 7)
_PARTIALS: Final = 64


class Layer(NamedTuple):
    """A 3 x 3 convolution."""

    channels: int
    out_channels: int
    groups: int
    stride: int
    batch: int
    size: tuple[int, int]


class Layers(NamedTuple):
    """Layers that the kernels are compiled for."""

    plain: Layer
    strided: Layer
    image: Layer
    depthwise: Layer


# Those of the table: as large as in a network.
USUAL: Final = Layers(
    Layer(64, 64, 1, 1, 8, (80, 80)),
    Layer(64, 64, 1, 2, 8, (80, 80)),
    Layer(3, 16, 1, 2, 8, (80, 80)),
    Layer(64, 64, 64, 1, 8, (80, 80)),
)


class _Setting(NamedTuple):
    """What is the same for every kernel of a target, data type and layout."""

    family: str
    kind: torch.dtype
    half: bool
    tiles: Tiles
    dot: Dot
    layout: str

    @classmethod
    def of(cls, target: str, dtype: str, channels_last: bool) -> _Setting:
        family, half = amd_family(target), dtype != "fp32"
        if family is None:
            raise ValueError(f"no family of tiles for {target}")
        dot = Dot(upcast=family == FMA)
        return cls(family, DTYPES[dtype], half, tiles(family, half), dot, "nhwc" if channels_last else "nchw")


def curated_convolutions(
    target: str, dtype: str, channels_last: bool, layers: Layers = USUAL, processors: int = 32, bias: bool = False
) -> Iterator[Kernel]:
    """Yield every kernel of training with every tile that a target is given.

    Args:
        target: Such as `gfx1100`.
        dtype: A key of `DTYPES`.
        channels_last: Layout of the tensors.
        layers: What the kernels are for.
        processors: Multiprocessors over which a sum over pixels is split.
        bias: Whether forward passes add one.
    """
    family, kind, half, known, dot, layout = _Setting.of(target, dtype, channels_last)
    plain, strided, image, deep = (_problem(layer, kind, channels_last) for layer in layers)

    def kernel(name: str, tile: object, problem: ConvProblem, call: Call, weight: Strides) -> Kernel:
        added = bias and "grad_input" not in name
        return Kernel(name, str(tile), dtype, layout, call, (kind,) * 4, problem, weight, bias=added)

    def partial(name: str, tile: object, problem: ConvProblem, described: tuple[Call, int]) -> Kernel:
        call, splits = described
        return Kernel(name, str(tile), dtype, layout, call, (kind, kind, torch.float32), problem, splits=splits)

    x, y, out_channels_last, packed = _by(plain)
    for size in SIZES:
        tile = known.gather[size]
        weight = packed if half else out_channels_last
        call = calls.gather_gemm(plain, x, weight, y, bias, tile, dot, back=False)
        yield kernel("forward", tile, plain, call, weight)
        sx, sy, _, sw = _by(strided)
        back = calls.gather_gemm(strided, sy, sw, sx, False, tile, dot, back=True)
        yield kernel("grad_input", tile, strided, back, sw)
        tile = known.weight[size]
        yield partial("grad_weight", tile, plain, calls.grad_weight(plain, y, x, tile, dot, processors, rows=False))
    for size in ROW_SIZES:
        tile = known.rows[size]
        described = calls.grad_weight(plain, y, x, tile, dot, processors, rows=True)
        yield partial("grad_weight_rows", tile, plain, described)
    ix, iy, _, iw = _by(image)
    yield kernel("forward_flat", known.flat, image, calls.forward_flat(image, ix, iw, iy, bias, known.flat, dot), iw)
    for side in _DEPTHWISE:
        deeper = replace(deep, weight_shape=(*deep.weight_shape[:2], side, side), padding=(side // 2,) * 2)
        dx, dy, _, dw = _by(deeper)
        each, named = block(family, channels_last, half, side * side), f"depthwise {side}x{side}"
        yield kernel(named, each, deeper, calls.depthwise(deeper, dx, dw, dy, bias, each, back=False), dw)
        back = calls.depthwise(deeper, dy, dw, dx, False, each, back=True)
        yield kernel(f"{named} grad_input", each, deeper, back, dw)
        yield partial(f"{named} grad_weight", each, deeper, calls.depthwise_weight(deeper, dy, dx, each, processors))
    if channels_last:  # the same for every layout
        total = calls.sum_partials(plain, _PARTIALS, packed)
        yield Kernel("sum_partials", "32x64", dtype, layout, total, (torch.float32, kind), plain, packed, _PARTIALS)
        yield Kernel("transpose", "32x64", dtype, layout, calls.transpose(plain.input_shape), (kind, kind), plain)


def curated_inference(
    target: str,
    dtype: str,
    channels_last: bool,
    layers: Layers = USUAL,
    processors: int = 32,
    bias: bool = True,
    activation: str = SILU,
) -> Iterator[Kernel]:
    """Yield the forward kernels with an activation in their epilogue, with every tile that a target is given.

    Args:
        target: Such as `gfx1100`.
        dtype: A key of `DTYPES`.
        channels_last: Layout of the tensors.
        layers: What the kernels are for.
        processors: Of no effect: no sum is split. There for whoever takes this in the place of `curated`.
        bias: Whether one is added.
        activation: What is computed of the result.
    """
    family, kind, half, known, dot, layout = _Setting.of(target, dtype, channels_last)
    problems = (_problem(layer, kind, channels_last) for layer in layers)
    plain, _, image, deep = (replace(each, activation=activation) for each in problems)

    def kernel(name: str, tile: object, problem: ConvProblem, call: Call, weight: Strides) -> Kernel:
        named = f"{name} {activation}"
        return Kernel(named, str(tile), dtype, layout, call, (kind,) * 4, problem, weight, 0, bias, activation)

    x, y, *either = _by(plain)
    weight = either[half]
    own = (tile for size in INFERENCE_SIZES if (tile := inference_tile(family, half, size)) is not None)
    for tile in (*known.gather.values(), *own):
        call = calls.gather_gemm(plain, x, weight, y, bias, tile, dot, back=False)
        yield kernel("forward", tile, plain, call, weight)
    ix, iy, *either = _by(image)
    iw = either[half]
    flat = inference_tile(family, half, FLAT) or known.flat
    yield kernel("forward_flat", flat, image, calls.forward_flat(image, ix, iw, iy, bias, flat, dot), iw)
    dx, dy, _, dw = _by(deep)
    each = block(family, channels_last, half)
    yield kernel("depthwise 3x3", each, deep, calls.depthwise(deep, dx, dw, dy, bias, each, back=False), dw)


def _by(problem: ConvProblem) -> tuple[Strides, Strides, Strides, Strides]:
    """Return the strides of input, output, and weight: with output channels last, and packed by input channels."""
    x, y = (strides(shape, problem.channels_last) for shape in (problem.input_shape, problem.output_shape))
    o, c, _, width = problem.weight_shape
    return x, y, (1, o, width * c * o, c * o), strides(problem.weight_shape, True)


def _problem(layer: Layer, dtype: torch.dtype, channels_last: bool) -> ConvProblem:
    channels, out_channels, groups, stride, batch, size = layer
    shape, weight = (batch, channels, *size), (out_channels, channels // groups, 3, 3)
    return ConvProblem(
        shape, weight, (stride,) * 2, (1, 1), (1, 1), (0, 0), groups, False, dtype, "cuda:0", channels_last
    )
