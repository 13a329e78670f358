"""Which output pixels a grad-weight adds up in one step: a rectangle of them, or as many as come next in memory.

A rectangle costs a few scalar instructions and no division a pixel, and where pixels of a row follow each other in
memory, the compiler knows that they do and reads several at once. Of the vector instructions that gfx1010 executes in
NCHW and fp32 for a layer of 64 channels and 80 x 80 pixels, 77 to 88 % multiply, by tile; with pixels in order 30 to
54 % (in emulation).
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from ..launched import Strides
from ..problem import ConvProblem, cdiv
from .tiles import Tile

_NARROWEST: Final = 4  # columns: below, hardly any pixels of a row are read together
_UNIT: Final = 4  # pixels that are read at once
# Rectangles that reach over the edges of the output add zeros there. By whether pixels of a row follow each other in
# memory, this many pixels for each that counts are worth it: of all curated tiles of units that multiply single
# numbers, pixels in order take 1.49 and 1.11 times as many vector instructions at least (gfx1010, gfx1100).
_MOST_PIXELS: Final = {True: 1.4, False: 1.1}


class Steps(NamedTuple):
    """The pixels of a grad-weight, step by step.

    Attributes:
        pixels: Of all steps of the batch; those of rectangles beyond the edges are among them.
        out_size: Rows and columns of the output, as the kernel is to see them.
        src_size: Those of the input.
        width: Columns of a rectangle; 0 where pixels are taken in order.
        even: Whether no rectangle reaches over an edge.
        unit: What columns of the output and strides of its gradient, but the last, are known to be multiples of.
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
    if _pointwise(problem) and all(by[2] == out_size[1] * by[3] for by in (grad, x)):
        out_size = src_size = (1, math.prod(out_size))  # the rows of an image are one long row
    widths = [1 << power for power in range(_NARROWEST.bit_length() - 1, tile.k.bit_length())]
    covered = {width: _covered(out_size, (tile.k // width, width)) for width in widths}
    width = min(widths, key=lambda width: (covered[width], -width))
    pixels, contiguous = math.prod(out_size), grad[3] == 1
    if covered[width] > _MOST_PIXELS[contiguous] * pixels:
        return in_order
    unit = _UNIT if contiguous and not any(n % _UNIT for n in (out_size[1], *grad[:3])) else 1
    return Steps(batch * covered[width], out_size, src_size, width, covered[width] == pixels, unit)


def _pointwise(problem: ConvProblem) -> bool:
    """Return whether output pixels are made of the input pixels at the same places."""
    return math.prod((*problem.kernel, *problem.stride)) == 1 and not any(problem.padding)


def _covered(size: tuple[int, ...], step: tuple[int, ...]) -> int:
    """Return how many pixels the steps have that cover a size."""
    return math.prod(cdiv(length, each) * each for length, each in zip(size, step, strict=True))
