"""Kernel calls as plain data: from a problem and the strides of its tensors to a grid, arguments and constants.

The same call is launched on a GPU, prepared (compiled) ahead of time, or compiled for a card that is not there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch

from ..problem import ConvProblem
from .tiles import Block, Tile

Strides = tuple[int, ...]
IMPLICIT_GEMM: Final = f"{__package__}.implicit_gemm"
GRAD_WEIGHT: Final = f"{__package__}.grad_weight"
DEPTHWISE: Final = f"{__package__}.depthwise"
_NO_PHASES = {"COMMON_H": 1, "COMMON_W": 1, "INVERSE_H": 0, "INVERSE_W": 0}
# A grad-weight program adds up at least this many steps of its tile: below, slices cost more than they spread.
_LEAST_STEPS = 8
_LEAST_DEPTHWISE_STEPS = 2  # a step has all taps in it, and a slice is small
_PROGRAMS_PER_PROCESSOR = 8


@dataclass(frozen=True)
class Call:
    """One launch, without its tensors.

    Attributes:
        module: Module of the kernel, in this package.
        kernel: Its name.
        grid: Programs in three dimensions.
        numbers: Arguments after the tensors, in order.
        constants: Constants, in order.
        warps: Warps of a program.
        stages: Stages of its loop.
    """

    module: str
    kernel: str
    grid: tuple[int, int, int]
    numbers: tuple[int, ...]
    constants: dict[str, Any]
    warps: int
    stages: int


@dataclass(frozen=True)
class Dot:
    """How products are computed.

    Attributes:
        upcast: Widen half precision first: where the hardware has no dot product of it.
        precision: `ieee`, or `tf32` where the user allows it.
    """

    upcast: bool = False
    precision: str = "ieee"

    def constants(self, half: bool) -> dict[str, Any]:
        """Return it as constants of a kernel."""
        return {"UPCAST": self.upcast and half, "PRECISION": self.precision}


def is_half(problem: ConvProblem) -> bool:
    """Tell whether a problem is in half precision."""
    return problem.dtype in (torch.float16, torch.bfloat16)


def tiles_over(length: int, size: int) -> int:
    """Return how many tiles of `size` cover `length`."""
    return -(-length // size)


@lru_cache(maxsize=4096)
def strides(shape: tuple[int, ...], channels_last: bool) -> Strides:
    """Return the strides of a whole tensor of four dimensions."""
    _, channels, height, width = shape
    if channels_last:
        return (channels * height * width, 1, width * channels, channels)
    return (channels * height * width, height * width, width, 1)


def geometry(problem: ConvProblem) -> dict[str, Any]:
    """Return kernel, stride, padding and dilation as constants."""
    names = ("KH", "KW", "SH", "SW", "PH", "PW", "DH", "DW")
    values = (*problem.kernel, *problem.stride, *problem.padding, *problem.dilation)
    return dict(zip(names, values, strict=True))


def phase_constants(problem: ConvProblem) -> dict[str, int]:
    """Return what a kernel needs to find the taps of a phase: gcd of stride and dilation, and an inverse modulo it."""
    found = {}
    for letter, stride, dilation in zip("HW", problem.stride, problem.dilation, strict=True):
        common = math.gcd(stride, dilation)
        rest = stride // common
        found[f"COMMON_{letter}"] = common
        found[f"INVERSE_{letter}"] = pow(dilation // common, -1, rest) if rest > 1 else 0
    return {name: found[name] for name in _NO_PHASES}


def wide(shapes_and_strides: list[tuple[tuple[int, ...], Strides]]) -> bool:
    """Tell whether an offset into one of the tensors needs 64 bits."""
    return any(sum((n - 1) * s for n, s in zip(shape, by, strict=True)) >= 2**31 for shape, by in shapes_and_strides)


def forward(problem: ConvProblem, x: Strides, weight: Strides, y: Strides, bias: bool, tile: Tile, dot: Dot) -> Call:
    """Describe the forward pass of `gather_gemm`; tensors: input, weight, bias (or anything), output."""
    outs, channels = problem.out_channels // problem.groups, problem.in_channels // problem.groups
    pixels = problem.batch * math.prod(problem.output_size)
    constants = {
        **geometry(problem),
        **_NO_PHASES,
        "BACK": False,
        "BIAS": bias,
        "WIDE": wide([(problem.input_shape, x), (problem.output_shape, y)]),
        **dot.constants(is_half(problem)),
        **_sizes(tile),
    }
    sizes = (problem.batch, *problem.output_size, *problem.output_size, *problem.input_size, channels, outs)
    return Call(
        IMPLICIT_GEMM,
        "gather_gemm",
        (tiles_over(pixels, tile.m) * tiles_over(outs, tile.n), problem.groups, 1),
        (*sizes, *x, outs * weight[0], *weight, *y),
        constants,
        tile.warps,
        tile.stages,
    )


def grad_input(problem: ConvProblem, grad: Strides, weight: Strides, gx: Strides, tile: Tile, dot: Dot) -> Call:
    """Describe the gradient of the input by `gather_gemm`; tensors: gradient, weight, anything, result."""
    outs, channels = problem.out_channels // problem.groups, problem.in_channels // problem.groups
    rows = [tiles_over(size, stride) for size, stride in zip(problem.input_size, problem.stride, strict=True)]
    constants = {
        **geometry(problem),
        **phase_constants(problem),
        "BACK": True,
        "BIAS": False,
        "WIDE": wide([(problem.output_shape, grad), (problem.input_shape, gx)]),
        **dot.constants(is_half(problem)),
        **_sizes(tile),
    }
    by_out, by_channel, *by_tap = weight
    sizes = (problem.batch, *rows, *problem.input_size, *problem.output_size, outs, channels)
    tiles = tiles_over(problem.batch * math.prod(rows), tile.m) * tiles_over(channels, tile.n)
    return Call(
        IMPLICIT_GEMM,
        "gather_gemm",
        (tiles, problem.groups * math.prod(problem.stride), 1),
        (*sizes, *grad, outs * by_out, by_channel, by_out, *by_tap, *gx),
        constants,
        tile.warps,
        tile.stages,
    )


def forward_flat(
    problem: ConvProblem, x: Strides, weight: Strides, y: Strides, bias: bool, tile: Tile, dot: Dot
) -> Call:
    """Describe the forward pass of `flat_gemm`; tensors as in `forward`."""
    outs, channels = problem.out_channels // problem.groups, problem.in_channels // problem.groups
    pixels = problem.batch * math.prod(problem.output_size)
    constants = {
        "C": channels,
        **geometry(problem),
        "BIAS": bias,
        "WIDE": wide([(problem.input_shape, x), (problem.output_shape, y)]),
        **dot.constants(is_half(problem)),
        **_sizes(tile),
    }
    return Call(
        IMPLICIT_GEMM,
        "flat_gemm",
        (tiles_over(pixels, tile.m) * tiles_over(outs, tile.n), problem.groups, 1),
        (problem.batch, *problem.output_size, *problem.input_size, outs, *x, outs * weight[0], *weight, *y),
        constants,
        tile.warps,
        tile.stages,
    )


def grad_weight(
    problem: ConvProblem, grad: Strides, x: Strides, tile: Tile, dot: Dot, processors: int, rows: bool
) -> tuple[Call, int]:
    """Describe shares of the gradient of the weight, and say how many; tensors: input, gradient, partial sums.

    Args:
        problem: The problem.
        grad: Strides of the gradient of the output.
        x: Strides of the input.
        tile: The tile.
        dot: How to multiply.
        processors: Multiprocessors to keep busy.
        rows: Three taps of a row at once, for kernels three wide.
    """
    outs, channels = problem.out_channels // problem.groups, problem.in_channels // problem.groups
    flat = not rows and channels % tile.n != 0
    if flat:
        tiles = tiles_over(math.prod(problem.kernel) * channels, tile.n)
    else:
        tiles = math.prod(problem.kernel[:1] if rows else problem.kernel) * tiles_over(channels, tile.n)
    tiles *= tiles_over(outs, tile.m)
    wanted = _PROGRAMS_PER_PROCESSOR * processors
    share, shares = shares_of(problem, tiles * problem.groups, tile.k, wanted, _LEAST_STEPS)
    known = geometry(problem)
    if rows:
        del known["KW"]
    constants = {
        **known,
        **({} if rows else {"FLAT": flat}),
        "WIDE": wide([(problem.input_shape, x), (problem.output_shape, grad)]),
        **dot.constants(is_half(problem)),
        **_sizes(tile),
    }
    pixels = problem.batch * math.prod(problem.output_size)
    call = Call(
        GRAD_WEIGHT,
        "weight_gemm_rows" if rows else "weight_gemm",
        (tiles, problem.groups, shares),
        (pixels, share, *problem.output_size, *problem.input_size, channels, outs, *x, *grad),
        constants,
        tile.warps,
        tile.stages,
    )
    return call, shares


def shares_of(problem: ConvProblem, programs: int, step: int, wanted: int, least: int) -> tuple[int, int]:
    """Return how many pixels a share has, and how many shares there are, so that every multiprocessor has work.

    Args:
        problem: The problem.
        programs: Programs that compute one share of the whole gradient.
        step: Pixels of a step.
        wanted: Programs, of all shares.
        least: Steps that are worth a program of their own.
    """
    pixels = problem.batch * math.prod(problem.output_size)
    shares = max(1, min(tiles_over(wanted, programs), tiles_over(pixels, least * step)))
    share = tiles_over(tiles_over(pixels, shares), step) * step
    return share, tiles_over(pixels, share)


def sum_shares(problem: ConvProblem, shares: int, gw: Strides) -> Call:
    """Describe the sum of the shares; tensors: partial sums, gradient of the weight."""
    depthwise = problem.weight_shape[1] == 1 and problem.groups > 1
    total = math.prod(problem.weight_shape)
    across = 32 if shares >= 32 else max(2, 1 << (shares - 1).bit_length())
    kernel = dict(zip(("KH", "KW"), problem.kernel, strict=True))
    return Call(
        GRAD_WEIGHT,
        "sum_shares",
        (tiles_over(total, 64), 1, 1),
        (shares, total, 1 if depthwise else problem.in_channels // problem.groups, *gw),
        {**kernel, "BS": across, "BE": 64},
        4,
        2,
    )


def turn(shape: tuple[int, ...]) -> Call:
    """Describe the copy of a contiguous tensor into channels_last; tensors: from, to."""
    samples, channels, pixels = shape[0], shape[1], math.prod(shape[2:])
    along = 32 if channels > 16 else 16
    grid = (tiles_over(channels, along), tiles_over(pixels, 64), samples)
    return Call(IMPLICIT_GEMM, "turn", grid, (channels, pixels), {"BC": along, "BP": 64}, 4, 1)


def depthwise(
    problem: ConvProblem, src: Strides, weight: Strides, out: Strides, bias: bool, block: Block, back: bool
) -> Call:
    """Describe a depthwise forward pass, or with `back` the gradient of the input; tensors as for the GEMMs."""
    by_out, _, *by_tap = weight
    rows = problem.output_size
    results, sources, channels = problem.output_shape, problem.input_shape, problem.out_channels
    if back:
        rows = tuple(tiles_over(size, stride) for size, stride in zip(problem.input_size, problem.stride, strict=True))
        results, sources, channels = problem.input_shape, problem.output_shape, problem.in_channels
    constants = {
        "MULTIPLE": problem.out_channels // problem.in_channels,
        **geometry(problem),
        **(phase_constants(problem) if back else _NO_PHASES),
        "BACK": back,
        "BIAS": bias,
        "WIDE": wide([(sources, src), (results, out)]),
        "BP": block.pixels,
        "BC": block.channels,
    }
    tiles = problem.batch * tiles_over(math.prod(rows), block.pixels)
    return Call(
        DEPTHWISE,
        "depthwise",
        (tiles, tiles_over(channels, block.channels), math.prod(problem.stride) if back else 1),
        (problem.batch, *rows, *results[2:], *sources[2:], channels, *src, by_out, *by_tap, *out),
        constants,
        block.warps,
        1,
    )


def depthwise_weight(
    problem: ConvProblem, grad: Strides, x: Strides, block: Block, processors: int
) -> tuple[Call, int]:
    """Describe shares of a depthwise gradient of the weight; tensors: input, gradient, partial sums."""
    tiles = tiles_over(problem.out_channels, block.weight_channels)
    wanted = block.weight_programs * processors
    share, shares = shares_of(problem, tiles, block.weight_pixels, wanted, _LEAST_DEPTHWISE_STEPS)
    constants = {
        "MULTIPLE": problem.out_channels // problem.in_channels,
        **geometry(problem),
        "WIDE": wide([(problem.input_shape, x), (problem.output_shape, grad)]),
        "BP": block.weight_pixels,
        "BT": 1 << (math.prod(problem.kernel) - 1).bit_length(),
        "BC": block.weight_channels,
    }
    pixels = problem.batch * math.prod(problem.output_size)
    numbers = (pixels, share, *problem.output_size, *problem.input_size, problem.out_channels, *x, *grad)
    grid = (tiles, shares, 1)
    return Call(DEPTHWISE, "depthwise_weight", grid, numbers, constants, block.weight_warps, 1), shares


def _sizes(tile: Tile) -> dict[str, int]:
    return {"BM": tile.m, "BN": tile.n, "BK": tile.k}
