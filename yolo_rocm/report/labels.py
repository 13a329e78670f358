"""Labels at the ends of lines, each beside its own and none on another: nobody has to match colours in a legend."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

# From one label to the next.
APART: Final = 15.0
# From the end of a line to its label, and from there to the edge.
GAP: Final = 16.0
_EDGE: Final = 4.0
# Nobody knows the font of the reader: these are the widths of a wide one (DejaVu Sans) of 12 pixels.
_WIDE: Final = frozenset("MWmw@%")
_WIDE_LETTER, _CAPITAL, _LETTER = 12.0, 9.0, 7.4
_WIDEST: Final = 120.0


def shortened(name: str) -> str:
    """Return a name that has room."""
    if width(name) <= _WIDEST:
        return name
    return next(cut for end in range(len(name) - 1, -1, -1) if width(cut := f"{name[:end]}\u2026") <= _WIDEST)


def margin(names: Sequence[str]) -> float:
    """Return the room that labels take on the right of a chart."""
    return GAP + max(width(shortened(name)) for name in names) + _EDGE


def width(text: str) -> float:
    """Return the width of a label, or a little more."""
    return sum(
        _WIDE_LETTER if letter in _WIDE or not letter.isascii() else _CAPITAL if letter.isupper() else _LETTER
        for letter in text
    )


def spread_out(wanted: Sequence[float], low: float, high: float, apart: float = APART) -> list[float]:
    """Return places in the order of the wanted ones, as near to them as they can be, apart from each other.

    Args:
        wanted: Where each label would be, were it alone.
        low: Where the first one may be.
        high: Where the last one may be.
        apart: Least distance.
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    # Labels that touch move as one block, to where they are nearest in the mean to where they would be.
    blocks: list[list[float]] = []
    for rank, index in enumerate(order):
        blocks.append([wanted[index] - rank * apart])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    starts = [fmean(block) for block in blocks for _ in block]
    last = high - (len(wanted) - 1) * apart
    places = [0.0] * len(wanted)
    for rank, index in enumerate(order):
        places[index] = max(low, min(starts[rank], last)) + rank * apart
    return places
