"""Which output pixels a grad-weight adds up in one step: a rectangle of them, or as many as come next in memory."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from ..problem import ConvProblem
from .tiles import Tile

Strides = tuple[int, ...]
_NARROWEST: Final = 4  # columns: below, hardly any pixels of a row are read together
# Rectangles that reach over the edges add zeros. Up to this many pixels for each that counts they are worth it: pixels
# in order take at least 1.2 times as many vector instructions, of every curated tile (compiled for gfx1010).
_MOST_PIXELS: Final = 1.25
_UNIT: Final = 4  # elements that are read at once


class Steps(NamedTuple):
    """The pixels of a grad-weight, step by step.

    Attributes:
        pixels: Of all steps; those of rectangles beyond the edges are among them.
        out_size: Rows and columns of the output, as the kernel is to see them; so is `src_size`, of the input.
        width: Columns of a rectangle; 0 where pixels are taken in order.
        even: Whether no rectangle reaches over an edge.
        unit: What all strides of the gradient but the last are known to be multiples of.
    """

    pixels: int
    out_size: tuple[int, ...]
    src_size: tuple[int, ...]
    width: int = 0
    even: bool = False
    unit: int = 1

    @property
    def constants(self) -> dict[str, Any]:
        """What the kernels are compiled for."""
        return {"STEP_W": self.width, "EVEN": self.even, "UNIT": self.unit}


def steps(problem: ConvProblem, grad: Strides, x: Strides, tile: Tile) -> Steps:
    """Cut the output of a problem into steps.

    Args:
        problem: The problem.
        grad: Strides of the gradient of the output.
        x: Strides of the input.
        tile: The tile, which says whether steps may be rectangles.
    """
    out_size, src_size, batch = problem.output_size, problem.input_size, problem.batch
    in_order = Steps(batch * math.prod(out_size), out_size, src_size)
    if not tile.rectangles:
        return in_order
    if _pointwise(problem) and all(_rows_follow(by, out_size) for by in (grad, x)):
        out_size = src_size = (1, math.prod(out_size))
    widths = [1 << power for power in range(_NARROWEST.bit_length() - 1, tile.k.bit_length())]
    covered = {width: math.prod(_covered(out_size, (tile.k // width, width))) for width in widths}
    width = min(widths, key=lambda width: (covered[width], -width))
    if covered[width] > _MOST_PIXELS * math.prod(out_size):
        return in_order
    unit = _UNIT if grad[3] == 1 and all(by % _UNIT == 0 for by in grad[:3]) else 1
    return Steps(
        batch * covered[width], out_size, src_size, width, covered[width] == math.prod(out_size), unit
    )


def _pointwise(problem: ConvProblem) -> bool:
    """Return whether input and output have the same pixels, each of one tap."""
    return math.prod((*problem.kernel, *problem.stride)) == 1 and not any(problem.padding)


def _rows_follow(by: Strides, size: tuple[int, ...]) -> bool:
    """Return whether the rows of an image are one long row in memory."""
    return by[2] == size[1] * by[3]


def _covered(size: tuple[int, ...], step: tuple[int, ...]) -> tuple[int, ...]:
    """Return the size that steps cover."""
    return tuple(-(-length // each) * each for length, each in zip(size, step, strict=True))
