"""From a problem and the strides of its tensors to the launch of a kernel: grid, arguments and constants.

The order of numbers and constants is that of the kernels' parameters, whose signatures say what each of them is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch

from ...engines.activations import IDENTITY
from ...engines.layout import strides as strides
from ...engines.triton.call import Call
from ..base import pixels
from ..launched import Shape, Sides, Strides, geometry
from ..problem import ConvProblem, cdiv
from .steps import steps
from .tiles import DEPTHWISE_SPLIT, GEMM_SPLIT, DepthwiseBlock, SplitK, Tile, layout_name

IMPLICIT_GEMM: Final = f"{__package__}.kernels.implicit_gemm"
GRAD_WEIGHT: Final = f"{__package__}.kernels.grad_weight"
_ROUNDED: Final = {torch.float16: 1, torch.bfloat16: 2, torch.float32: 0}  # ROUND of `sum_partials`
DEPTHWISE: Final = f"{__package__}.kernels.depthwise"
_NO_PHASES = {"GCD_H": 1, "GCD_W": 1, "MODINV_H": 0, "MODINV_W": 0}


@dataclass(frozen=True)
class Dot:
    """How products are computed.

    Attributes:
        upcast: Widen half precision first: where the hardware has no dot product of it.
        precision: `ieee`, or `tf32` where the user allows it.
    """

    upcast: bool = False
    precision: str = "ieee"


def epilogue(problem: ConvProblem) -> dict[str, Any]:
    """Return what is computed of a result before it is written, as constants; where it is nothing, always the same."""
    if problem.activation == IDENTITY:
        return {"ACTIVATION": IDENTITY, "SLOPE": 0.0, "EXACT": False}
    return {"ACTIVATION": problem.activation, "SLOPE": problem.slope, "EXACT": not is_half(problem)}


def is_half(problem: ConvProblem) -> bool:
    """Return whether a problem is in half precision."""
    return problem.dtype in (torch.float16, torch.bfloat16)


def phase_constants(problem: ConvProblem, back: bool) -> dict[str, int]:
    """Return what a kernel needs to find the taps of a stride phase: see `implicit_gemm.first_tap`."""
    if not back:
        return _NO_PHASES
    gcds = [math.gcd(stride, dilation) for stride, dilation in zip(problem.stride, problem.dilation, strict=True)]
    inverses = [
        pow(dilation // gcd, -1, stride // gcd) if stride > gcd else 0
        for stride, dilation, gcd in zip(problem.stride, problem.dilation, gcds, strict=True)
    ]
    return dict(zip(_NO_PHASES, (*gcds, *inverses), strict=True))


def needs_int64(*tensors: tuple[Shape, Strides]) -> bool:
    """Return whether an offset into one of the tensors needs 64 bits."""
    return any(sum((n - 1) * s for n, s in zip(shape, by, strict=True)) >= 2**31 for shape, by in tensors)


def gather_gemm(
    problem: ConvProblem, src: Strides, weight: Strides, out: Strides, bias: bool, tile: Tile, dot: Dot, back: bool
) -> Call:
    """Describe forward, or with `back` grad-input; tensors: source, weight, bias or anything, result."""
    sides = Sides.of(problem, back)
    by_out, by_channel, *by_tap = weight
    by_group = problem.group_channels[1] * by_out
    tiles = cdiv(problem.batch * math.prod(sides.phase), tile.m) * cdiv(sides.outputs, tile.n)
    sizes = (problem.batch, *sides.phase, *sides.out[2:], *sides.src[2:], sides.channels, sides.outputs)
    by_sides = (by_channel, by_out) if back else (by_out, by_channel)
    return Call(
        IMPLICIT_GEMM,
        "gather_gemm",
        (tiles, problem.groups * sides.phases, 1),
        (*sizes, *src, by_group, *by_sides, *by_tap, *out),
        {
            **geometry(problem),
            **phase_constants(problem, back),
            "GRAD_INPUT": back,
            "BIAS": bias,
            **epilogue(problem),
            **_gemm_constants(problem, needs_int64((sides.src, src), (sides.out, out)), tile, dot),
        },
        tile.warps,
        tile.stages,
    )


def forward_flat(
    problem: ConvProblem, x: Strides, weight: Strides, y: Strides, bias: bool, tile: Tile, dot: Dot
) -> Call:
    """Describe the forward pass of `flat_gemm`; tensors as of `gather_gemm`."""
    channels, out_channels = problem.group_channels
    sizes = (problem.batch, *problem.output_size, *problem.input_size, out_channels)
    return Call(
        IMPLICIT_GEMM,
        "flat_gemm",
        (cdiv(pixels(problem), tile.m) * cdiv(out_channels, tile.n), problem.groups, 1),
        (*sizes, *x, out_channels * weight[0], *weight, *y),
        {
            "C": channels,
            **geometry(problem),
            "BIAS": bias,
            **epilogue(problem),
            **_gemm_constants(problem, _int64(problem, x, y), tile, dot),
        },
        tile.warps,
        tile.stages,
    )


def grad_weight(
    problem: ConvProblem, grad: Strides, x: Strides, tile: Tile, dot: Dot, processors: int, rows: bool
) -> tuple[Call, int]:
    """Describe the partial sums of the gradient of the weight, and say how many; tensors: input, gradient, partials.

    Args:
        problem: The problem.
        grad: Strides of the gradient of the output.
        x: Strides of the input.
        tile: The tile.
        dot: How to multiply.
        processors: Multiprocessors to keep busy.
        rows: Three taps of a row at once, for kernels three wide.
    """
    channels, out_channels = problem.group_channels
    flat = not rows and channels % tile.n != 0
    taps = problem.kernel[0] if rows else math.prod(problem.kernel)
    tiles = cdiv(taps * channels, tile.n) if flat else taps * cdiv(channels, tile.n)
    tiles *= cdiv(out_channels, tile.m)
    walk = steps(problem, grad, x, tile)
    split_pixels, splits = split_k(walk.pixels, tiles * problem.groups, tile.k, processors, GEMM_SPLIT)
    constants = geometry(problem)
    if rows:
        del constants["KW"]
    else:
        constants["FLAT"] = flat
    call = Call(
        GRAD_WEIGHT,
        "weight_gemm_rows" if rows else "weight_gemm",
        (tiles, problem.groups, splits),
        (walk.pixels, split_pixels, *walk.out_size, *walk.src_size, channels, out_channels, *x, *grad),
        {**constants, **walk.constants, **_gemm_constants(problem, _int64(problem, x, grad), tile, dot)},
        tile.warps,
        tile.stages,
    )
    return call, splits


def split_k(pixels: int, programs: int, step: int, processors: int, policy: SplitK) -> tuple[int, int]:
    """Return how many pixels a split has, and how many splits there are, so that every multiprocessor has work.

    Args:
        pixels: Output pixels of the batch.
        programs: Programs of one split, which compute the whole gradient.
        step: Pixels of a step.
        processors: Multiprocessors of the device.
        policy: Programs for each of them, and steps for each program.
    """
    splits = max(1, min(cdiv(policy.programs * processors, programs), cdiv(pixels, policy.steps * step)))
    split_pixels = cdiv(cdiv(pixels, splits), step) * step
    return split_pixels, cdiv(pixels, split_pixels)


def sum_partials(problem: ConvProblem, splits: int, gw: Strides, wide: bool = False) -> Call:
    """Describe the sum of the partial sums; tensors: partial sums, gradient of the weight.

    Args:
        problem: The problem.
        splits: How many there are.
        gw: Strides of the gradient.
        wide: Whether it is in fp32, of a problem in half precision: its values are those of half precision.
    """
    rounding = _ROUNDED[problem.dtype] if wide else 0
    elements = math.prod(problem.weight_shape)
    block = 32 if splits >= 32 else max(2, 1 << (splits - 1).bit_length())
    return Call(
        GRAD_WEIGHT,
        "sum_partials",
        (cdiv(elements, 64), 1, 1),
        (splits, elements, problem.weight_shape[1], *gw),
        {"KH": problem.kernel[0], "KW": problem.kernel[1], "ROUND": rounding, "BLOCK_S": block, "BLOCK_E": 64},
        4,
        2,
    )


def transpose(shape: Shape) -> Call:
    """Describe the copy of a contiguous tensor into channels_last; tensors: from, to."""
    samples, channels, pixels = shape[0], shape[1], math.prod(shape[2:])
    block = 32 if channels > 16 else 16
    grid = (cdiv(channels, block), cdiv(pixels, 64), samples)
    return Call(IMPLICIT_GEMM, "transpose", grid, (channels, pixels), {"BLOCK_C": block, "BLOCK_P": 64}, 4, 1)


def depthwise(
    problem: ConvProblem, src: Strides, weight: Strides, out: Strides, bias: bool, block: DepthwiseBlock, back: bool
) -> Call:
    """Describe a depthwise forward pass, or with `back` the gradient of the input; tensors as for the GEMMs."""
    sides = Sides.of(problem, back)
    by_out, _, *by_tap = weight
    channels = sides.out[1]
    tiles = problem.batch * cdiv(math.prod(sides.phase), block.pixels)
    return Call(
        DEPTHWISE,
        "depthwise",
        (tiles, cdiv(channels, block.channels), sides.phases),
        (problem.batch, *sides.phase, *sides.out[2:], *sides.src[2:], channels, *src, by_out, *by_tap, *out),
        {
            "MULTIPLIER": problem.out_channels // problem.in_channels,
            **geometry(problem),
            **phase_constants(problem, back),
            "GRAD_INPUT": back,
            "BIAS": bias,
            **epilogue(problem),
            "INT64": needs_int64((sides.src, src), (sides.out, out)),
            "BLOCK_P": block.pixels,
            "BLOCK_C": block.channels,
        },
        block.warps,
        1,
    )


def depthwise_weight(
    problem: ConvProblem, grad: Strides, x: Strides, block: DepthwiseBlock, processors: int
) -> tuple[Call, int]:
    """Describe the partial sums of a depthwise gradient of the weight; tensors: input, gradient, partial sums."""
    tiles = cdiv(problem.out_channels, block.weight_channels)
    policy = DEPTHWISE_SPLIT[layout_name(problem.channels_last)]
    split_pixels, splits = split_k(pixels(problem), tiles, block.weight_pixels, processors, policy)
    call = Call(
        DEPTHWISE,
        "depthwise_weight",
        (tiles, splits, 1),
        (pixels(problem), split_pixels, *problem.output_size, *problem.input_size, problem.out_channels, *x, *grad),
        {
            "MULTIPLIER": problem.out_channels // problem.in_channels,
            **geometry(problem),
            "INT64": _int64(problem, x, grad),
            "BLOCK_P": block.weight_pixels,
            "BLOCK_T": 1 << (math.prod(problem.kernel) - 1).bit_length(),
            "BLOCK_C": block.weight_channels,
        },
        block.weight_warps,
        1,
    )
    return call, splits


def _int64(problem: ConvProblem, x: Strides, y: Strides) -> bool:
    """Return whether an offset into the input or the output, or into a gradient of one, needs 64 bits."""
    return needs_int64((problem.input_shape, x), (problem.output_shape, y))


def _gemm_constants(problem: ConvProblem, int64: bool, tile: Tile, dot: Dot) -> dict[str, Any]:
    """Return the constants that all GEMMs end with."""
    return {
        "INT64": int64,
        "UPCAST": dot.upcast and is_half(problem),
        "PRECISION": dot.precision,
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
    }
