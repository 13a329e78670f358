"""From a problem to the launches of its kernels: grid, arguments and constants.

The order of numbers and constants is that of the kernels' parameters, whose signatures say what each of them is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ...engines.triton.call import Call
from ..problem import NormProblem
from .tiles import COMBINED, Block, Tile, channel_block, pixel_block, power, split

STATISTICS: Final = f"{__package__}.kernels.statistics"
ACTIVATION: Final = f"{__package__}.kernels.activation"
# Tensors that kernels change in place, by their places among the arguments: running statistics, and batches.
_TRACKED, _COUNTED = (1, 2), (3,)


@dataclass(frozen=True)
class Layout:
    """A problem as the kernels see it: see `values`.

    Attributes:
        samples: Of the batch; rows in channels_last.
        channels: Channels.
        pixels: Of a plane; 1 in channels_last.
        last: Whether channels are next to each other in memory.
    """

    samples: int
    channels: int
    pixels: int
    last: bool

    @classmethod
    def of(cls, problem: NormProblem) -> Layout:
        """Return the layout of a problem; where a plane is one pixel, both are the same."""
        last = problem.channels_last or problem.pixels == 1
        samples, pixels = (problem.rows, 1) if last else (problem.shape[0], problem.pixels)
        return cls(samples, problem.channels, pixels, last)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """What kernels take."""
        return self.samples, self.channels, self.pixels

    def constants(self, block: Block) -> dict[str, Any]:
        """Return what every kernel that goes over the tensor ends with."""
        int64 = self.samples * self.channels * self.pixels >= 2**31
        return {"LAST": self.last, "INT64": int64, "BLOCK_A": block.a, "BLOCK_B": block.b}


@dataclass(frozen=True)
class Parts:
    """How the values of a channel are cut into parts.

    Attributes:
        block: Tile of the programs.
        blocks: Blocks of channels.
        tiles: Tiles of a channel.
        part_tiles: Those of a part.
        parts: Parts of a channel; where there is one, it needs no second kernel.
    """

    block: Block
    blocks: int
    tiles: int
    part_tiles: int
    parts: int


def cut(problem: NormProblem, tile: Tile, processors: int) -> Parts:
    """Cut the channels of a problem into parts."""
    samples, channels, pixels = (layout := Layout.of(problem)).sizes
    if layout.last:
        block = channel_block(samples, channels, tile.sums, tile.whole)
        blocks, tiles = cdiv(channels, block.b), cdiv(samples, block.a)
    else:
        block = pixel_block(samples, pixels, tile.sums)
        blocks, tiles = channels, cdiv(samples, block.a) * cdiv(pixels, block.b)
    return Parts(block, blocks, tiles, *((tiles, 1) if tile.whole else split(tiles, blocks, processors)))


def partial_statistics(problem: NormProblem, parts: Parts, tile: Tile) -> Call:
    """Describe the partial statistics of a batch; tensors: input, partial statistics."""
    return _in_parts(STATISTICS, "partial_statistics", problem, parts, tile, {})


def combine_statistics(
    problem: NormProblem, parts: Parts, momentum: float, eps: float, track: bool, count: bool
) -> Call:
    """Describe their combination; tensors: partial statistics, running ones and batches or anything, results."""
    grid, tiles, warps = _combined(problem, parts)
    numbers, constants = (problem.channels, parts.parts, problem.rows, momentum, eps), {"TRACK": track, "COUNT": count}
    updated = _updated(track, count)
    return Call(STATISTICS, "combine_statistics", grid, numbers, {**constants, **tiles}, warps, 1, updated)


def whole_forward(
    problem: NormProblem, parts: Parts, tile: Tile, momentum: float, eps: float, track: bool, count: bool
) -> Call:
    """Describe forward where channels are one part each.

    Tensors: input, running statistics and batches or anything, weight and bias or anything, mean, invstd, activation.
    """
    numbers = (*Layout.of(problem).sizes, parts.tiles, problem.rows, momentum, eps)
    flags = {"TRACK": track, "COUNT": count, "AFFINE": problem.affine, **_activation(problem)}
    constants, updated = {**flags, **_summed(problem, parts, tile)}, _updated(track, count)
    return Call(ACTIVATION, "whole_forward", (parts.blocks, 1, 1), numbers, constants, tile.warps, 1, updated)


def activate(problem: NormProblem, tile: Tile) -> Call:
    """Describe the activation; tensors: input, mean, invstd, weight and bias or anything, result."""
    return _by_values("activate", problem, tile, {"AFFINE": problem.affine})


def partial_gradients(problem: NormProblem, parts: Parts, tile: Tile) -> Call:
    """Describe the partial sums of backward; tensors: gradient, then as in `activate`, partial sums."""
    constants = {"AFFINE": problem.affine, **_activation(problem)}
    return _in_parts(ACTIVATION, "partial_gradients", problem, parts, tile, constants)


def combine_gradients(problem: NormProblem, parts: Parts, weight: bool, bias: bool) -> Call:
    """Describe their sum; tensors: partial sums, invstd, weight, gradients of parameters or anything, coefficients."""
    grid, tiles, warps = _combined(problem, parts)
    constants = {"AFFINE": problem.affine, "WEIGHT": weight, "BIAS": bias, **tiles}
    numbers = (problem.channels, parts.parts, problem.rows)
    return Call(ACTIVATION, "combine_gradients", grid, numbers, constants, warps, 1)


def whole_backward(problem: NormProblem, parts: Parts, tile: Tile, weight: bool, bias: bool) -> Call:
    """Describe backward where channels are one part each.

    Tensors: gradient, as in `activate`, gradients of parameters or anything, gradient of the input.
    """
    numbers = (*Layout.of(problem).sizes, parts.tiles, problem.rows)
    flags = {"AFFINE": problem.affine, "WEIGHT": weight, "BIAS": bias, "TRAINING": problem.training}
    constants = {**flags, **_activation(problem), **_summed(problem, parts, tile)}
    return Call(ACTIVATION, "whole_backward", (parts.blocks, 1, 1), numbers, constants, tile.warps, 1)


def input_gradient(problem: NormProblem, tile: Tile) -> Call:
    """Describe the gradient of the input; tensors: gradient, as in `activate`, coefficients or anything, result."""
    return _by_values("input_gradient", problem, tile, {"AFFINE": problem.affine, "TRAINING": problem.training})


def cdiv(length: int, size: int) -> int:
    """Return how many tiles of `size` cover `length`."""
    return -(-length // size)


def _activation(problem: NormProblem) -> dict[str, Any]:
    return {"ACTIVATION": problem.activation, "SLOPE": problem.slope}


def _summed(problem: NormProblem, parts: Parts, tile: Tile) -> dict[str, Any]:
    """Return what every kernel ends with that adds up the values of channels."""
    return {**Layout.of(problem).constants(parts.block), "STAGES": tile.stages}


def _in_parts(module: str, kernel: str, problem: NormProblem, parts: Parts, tile: Tile, flags: dict[str, Any]) -> Call:
    """Describe a kernel whose programs add up one part each."""
    numbers = (*Layout.of(problem).sizes, parts.tiles, parts.part_tiles, parts.parts)
    constants = {**flags, **_summed(problem, parts, tile)}
    return Call(module, kernel, (parts.blocks, parts.parts, 1), numbers, constants, tile.warps, 1)


def _by_values(kernel: str, problem: NormProblem, tile: Tile, constants: dict[str, Any]) -> Call:
    """Describe a kernel whose programs compute the values of one tile each."""
    samples, channels, pixels = (layout := Layout.of(problem)).sizes
    if layout.last:
        block = channel_block(samples, channels, tile.values)
        grid = (cdiv(samples, block.a) * cdiv(channels, block.b), 1, 1)
    else:
        block = pixel_block(samples * channels, pixels, tile.values)
        grid = (cdiv(samples * channels, block.a) * cdiv(pixels, block.b), 1, 1)
    constants = {**constants, **_activation(problem), **layout.constants(block)}
    return Call(ACTIVATION, kernel, grid, layout.sizes, constants, tile.warps, 1)


def _combined(problem: NormProblem, parts: Parts) -> tuple[tuple[int, int, int], dict[str, int], int]:
    """Return grid, tile and warps of a kernel that combines all parts of some channels at once."""
    values, warps = COMBINED
    block_s = 4 ** ((power(parts.parts).bit_length()) // 2)  # a kernel for every other power of two
    block_c = max(1, min(values // block_s, power(problem.channels), 32))
    return (cdiv(problem.channels, block_c), 1, 1), {"BLOCK_S": block_s, "BLOCK_C": block_c}, warps


def _updated(track: bool, count: bool) -> tuple[int, ...]:
    return (*(_TRACKED if track else ()), *(_COUNTED if count else ()))
