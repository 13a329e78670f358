"""From a problem and the strides of its tensors to a launch of a HIP kernel: source, constants, grid and numbers.

Kernels take their tensors first, then numbers, whose order is that of the kernel's parameters: see the sources.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch

from ...engines.activations import ACTIVATIONS
from ..launched import Shape, Sides, Strides, geometry
from ..problem import ConvProblem, cdiv
from .tiles import HipTile

STORAGE: Final = {torch.float32: "float", torch.float16: "half_t", torch.bfloat16: "bf16_t"}


@dataclass(frozen=True)
class HipCall:
    """A launch without its tensors.

    Attributes:
        source: Name of the source file, which is also that of the kernel in it.
        defines: What the source is compiled with.
        grid: Blocks.
        threads: Threads of a block.
        numbers: Arguments after the tensors.
    """

    source: str
    defines: tuple[tuple[str, int | str], ...]
    grid: tuple[int, int, int]
    threads: int
    numbers: tuple[int, ...]


def activation(problem: ConvProblem) -> dict[str, int | str]:
    """Return what a kernel computes of its sums before it writes them, as its source names that."""
    return {"ACT": ACTIVATIONS.index(problem.activation), "SLOPE": f"{problem.slope:.9e}f"}


def gather_gemm(problem: ConvProblem, src: Strides, out: Strides, tile: HipTile, back: bool) -> HipCall:
    """Describe forward, or with `back` grad-input; tensors: source, packed weight, bias or None, result."""
    sides = Sides.of(problem, back)
    channels, outputs, out_size = sides.channels, sides.outputs, sides.out[2:]
    tiles_m, tiles_n = cdiv(problem.batch * math.prod(sides.phase), tile.m), cdiv(outputs, tile.n)
    src_last, out_last = _channels_by_four(src, channels), out[1] == 1 and outputs > 1
    one_to_one = problem.stride == (1, 1)
    pointwise = not src_last and one_to_one and problem.kernel == (1, 1) and problem.padding == (0, 0)
    whole = sides.phase == out_size and _pixels_by_four(out, out_size)
    defines: dict[str, int | str] = {
        "BACK": int(back),
        "SRC_LAST": int(src_last),
        "POINTWISE": int(pointwise and _pixels_by_four(src, sides.src[2:])),
        "OUT_LAST": int(out_last),
        "VEC_OUT": int(_channels_by_four(out, outputs) if out_last else whole),
        "EVEN_K": int(channels % tile.k == 0),
        **activation(problem),
    }
    sizes = (problem.batch, *sides.phase, *out_size, *sides.src[2:], channels, outputs)
    weight_row = problem.groups * tiles_n * tile.n
    return HipCall(
        "gather_gemm",
        _defines(problem, tile, **defines),
        (tiles_m * tiles_n * sides.phases, problem.groups, 1),
        tile.threads,
        (*sizes, *src, *out, *geometry(problem).values(), tiles_n, problem.groups, weight_row),
    )


def packed_shape(problem: ConvProblem, tile: HipTile, back: bool) -> tuple[int, int, int, int]:
    """Return the shape of a packed weight: taps, channels, groups, outputs, the second and last in whole tiles."""
    sides = Sides.of(problem, back)
    channels, outputs = cdiv(sides.channels, tile.k) * tile.k, cdiv(sides.outputs, tile.n) * tile.n
    return (math.prod(problem.kernel), channels, problem.groups, outputs)


def pack_weight(problem: ConvProblem, weight: Strides, tile: HipTile, back: bool) -> HipCall:
    """Describe the copy of a weight into the order that `gather_gemm` reads; tensors: weight, packed weight."""
    sides = Sides.of(problem, back)
    taps, packed_channels, groups, packed_outputs = shape = packed_shape(problem, tile, back)
    elements = math.prod(shape)
    channels, outputs = (sides.channels, packed_channels), (sides.outputs, packed_outputs)
    sizes = (elements, taps, problem.kernel[1], *channels, groups, *outputs)
    defines = (("T", STORAGE[problem.dtype]), ("BACK", int(back)))
    return HipCall("pack_weight", defines, (cdiv(elements, 256), 1, 1), 256, (*sizes, *weight))


def grad_weight(problem: ConvProblem, grad: Strides, x: Strides, tile: HipTile, processors: int) -> tuple[HipCall, int]:
    """Describe the partial sums of the gradient of the weight, and say how many; tensors: gradient, input, partials."""
    channels, outputs = problem.group_channels
    width = math.prod(problem.kernel) * channels
    tiles_m, tiles_n = cdiv(outputs, tile.m), cdiv(width, tile.n)
    pixels = problem.batch * math.prod(problem.output_size)
    split_pixels, splits = split_k(pixels, tiles_m * tiles_n * problem.groups, tile, processors)
    run = tile.n * tile.k // tile.threads  # columns that a thread reads
    defines = {
        "GRAD_LAST": int(_channels_by_four(grad, outputs)),
        "SRC_LAST": int(_channels_by_four(x, channels)),
        "ONE_TAP": int(channels % run == 0),
    }
    sizes = (pixels, split_pixels, *problem.output_size, *problem.input_size, channels, outputs)
    return (
        HipCall(
            "weight_gemm",
            _defines(problem, tile, **defines),
            (tiles_m * tiles_n, problem.groups, splits),
            tile.threads,
            (*sizes, *grad, *x, *geometry(problem).values(), tiles_n, problem.groups),
        ),
        splits,
    )


def split_k(pixels: int, blocks: int, tile: HipTile, processors: int) -> tuple[int, int]:
    """Return how many pixels a split of grad-weight has, and how many splits there are: every processor has work."""
    splits = max(1, min(cdiv(tile.split_blocks * processors, blocks), cdiv(pixels, 16 * tile.k), 65535))
    split_pixels = cdiv(cdiv(pixels, splits), tile.k) * tile.k
    return split_pixels, cdiv(pixels, split_pixels)


def sum_partials(problem: ConvProblem, splits: int, gw: Strides) -> HipCall:
    """Describe the sum of the partial sums; tensors: partial sums, gradient of the weight."""
    elements = math.prod(problem.weight_shape)
    lanes = 16 if splits >= 64 else 8 if splits >= 16 else 1
    numbers = (splits, elements, problem.weight_shape[1], problem.kernel[1], math.prod(problem.kernel), *gw)
    defines = (("T", STORAGE[problem.dtype]), ("LANES", lanes))
    return HipCall("sum_partials", defines, (cdiv(elements, 256 // lanes), 1, 1), 256, numbers)


def _defines(problem: ConvProblem, tile: HipTile, **more: int | str) -> tuple[tuple[str, int | str], ...]:
    return (("T", STORAGE[problem.dtype]), *tile.defines().items(), *more.items())


def _channels_by_four(strides: Strides, channels: int) -> bool:
    """Return whether four channels are always at an address that is a multiple of their size together."""
    return strides[1] == 1 and channels % 4 == 0 and all(by % 4 == 0 for by in (strides[0], *strides[2:]))


def _pixels_by_four(strides: Strides, size: Shape) -> bool:
    """Return whether four pixels of a plane are always one after the other, at a multiple of their size together."""
    return (
        strides[3] == 1
        and strides[2] == size[1]
        and math.prod(size) % 4 == 0
        and not (strides[0] % 4 or strides[1] % 4)
    )


def few_channels(problem: ConvProblem, x: Strides, weight: Strides, y: Strides) -> HipCall:
    """Describe the forward pass of a convolution of few channels; tensors: input, weight, bias or None, output."""
    outputs = min(32, cdiv(problem.out_channels, 16) * 16)
    last = _channels_by_four(y, problem.out_channels)
    grid = (cdiv(problem.batch * math.prod(problem.output_size), 256), cdiv(problem.out_channels, outputs), 1)
    numbers = (problem.batch, *problem.output_size, *problem.input_size, problem.out_channels, *x, *y, *weight)
    more = {
        "CHANNELS": problem.in_channels,
        "OUTPUTS": outputs,
        "OUT_LAST": int(last),
        **activation(problem),
    }
    return HipCall("few_channels", _fixed_geometry(problem, **more), grid, 128, numbers)


def depthwise(problem: ConvProblem, src: Strides, weight: Strides, out: Strides, back: bool) -> HipCall:
    """Describe a depthwise forward pass, or with `back` grad-input; tensors: source, weight, bias or None, result."""
    sides = Sides.of(problem, back)
    channels, area = problem.in_channels, math.prod(sides.out[2:])
    last = _channels_by_four(src, channels) and _channels_by_four(out, channels)
    blocks = cdiv(channels, 32) if last else cdiv(area, 256)
    pixels = 4 if problem.batch * area >= 2**16 else 1
    grid = blocks * (cdiv(problem.batch * area, 32 * pixels) if last else problem.batch * channels)
    by_out, _, *by_tap = weight
    numbers = (problem.batch, *sides.out[2:], *sides.src[2:], channels, *src, *out, by_out, *by_tap, blocks)
    more = {"BACK": int(back), "LAST": int(last), "PIXELS": pixels, **activation(problem)}
    return HipCall("depthwise", _fixed_geometry(problem, **more), (grid, 1, 1), 256, numbers)


def depthwise_weight(problem: ConvProblem, grad: Strides, x: Strides, processors: int) -> tuple[HipCall, int]:
    """Describe the partial sums of a depthwise grad-weight, and say how many; tensors: gradient, input, partials."""
    last = grad[1] == x[1] == 1
    blocks = cdiv(problem.in_channels, 32) if last else problem.in_channels
    lanes = 8 if last else 256
    pixels = problem.batch * math.prod(problem.output_size)
    splits = max(1, min(cdiv(8 * processors, blocks), cdiv(pixels, 16 * lanes), 65535))
    split_pixels = cdiv(cdiv(pixels, splits), lanes) * lanes
    splits = cdiv(pixels, split_pixels)
    numbers = (pixels, split_pixels, *problem.output_size, *problem.input_size, problem.in_channels, *grad, *x)
    defines = _fixed_geometry(problem, LAST=int(last))
    return HipCall("depthwise_weight", defines, (blocks, splits, 1), 256, numbers), splits


def _fixed_geometry(problem: ConvProblem, **more: int | str) -> tuple[tuple[str, int | str], ...]:
    return (("T", STORAGE[problem.dtype]), *geometry(problem).items(), *more.items())
