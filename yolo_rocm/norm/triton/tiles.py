"""The policies of the Triton kernels, as tables: tiles by family of GPUs, and over how many programs a sum is split.

The kernels move bytes: a tile has to keep enough loads in flight, and small layers want few programs that wait for each
other. NVIDIA's tiles were timed on an H200; those of AMD families were compiled and executed in emulation, never timed:
none of them spills (`tools/emulate_kernels.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ...engines.triton.available import FMA, MFMA, NVIDIA, WMMA

SIZES: Final = ("s", "l", "one")


@dataclass(frozen=True)
class Tile:
    """Values of a tile, and the warps that share it.

    Attributes:
        sums: Values that a program adds up at once.
        values: Values of a program that computes each by itself.
        warps: Warps, or wavefronts, of a program.
        stages: Tiles of a sum whose loads are in flight at once.
        whole: Whether a program takes all values of its channels: one launch a pass.
    """

    sums: int
    values: int
    warps: int
    stages: int = 1
    whole: bool = False

    def __str__(self) -> str:
        """Return the sizes, as in a table."""
        stages = f", {self.stages} stages" if self.stages > 1 else ""
        return f"{self.sums} and {self.values}, {self.warps} warps{stages}{', whole channels' if self.whole else ''}"


class Block(NamedTuple):
    """A tile of two dimensions: samples, planes or rows; pixels or channels."""

    a: int
    b: int


_WAVE32: Final = (Tile(1024, 1024, 4), Tile(2048, 2048, 4), Tile(2048, 2048, 8, whole=True))
_TABLE: Final = {
    NVIDIA: (Tile(1024, 1024, 4), Tile(2048, 2048, 4), Tile(4096, 2048, 8, whole=True)),
    FMA: _WAVE32,
    WMMA: _WAVE32,
    MFMA: (Tile(2048, 2048, 4), Tile(4096, 4096, 4), Tile(4096, 2048, 8, whole=True)),
}
# Programs for each multiprocessor, of all parts of all channels together, and tiles that each adds up at least: below,
# writing and reading its sums costs more than it saves. A program of its own combines the parts of a channel at once.
PROGRAMS: Final = 8
STEPS: Final = 4
MOST_PARTS: Final = 1024
# Values, warps of the programs that combine parts.
COMBINED: Final = (2048, 4)
# A tile may reach this far over an edge, at most, for the sake of longer rows.
_MOST_PADDING: Final = 1.25
_SHORTEST_ROW: Final = 128  # pixels
_FEWEST_CHANNELS: Final = 16
_MOST_CHANNELS: Final = 64
# Values of a program that takes whole channels, beyond which it is not worth a measurement.
MOST_WHOLE: Final = 2**18


def tile(family: str, size: str) -> Tile:
    """Return the tile of a family, by its size."""
    return dict(zip(SIZES, _TABLE[family], strict=True))[size]


def pixel_block(planes: int, pixels: int, values: int) -> Block:
    """Return planes and pixels of a tile of about as many values, in NCHW."""
    most_planes = power(planes)
    b = width(pixels, values, max(_SHORTEST_ROW, values // most_planes))
    return Block(min(values // b, most_planes), b)


def channel_block(rows: int, channels: int, values: int, whole: bool = False) -> Block:
    """Return rows and channels of a tile of about as many values, in channels_last: few channels of whole ones."""
    b = width(channels, _FEWEST_CHANNELS if whole else _MOST_CHANNELS, _FEWEST_CHANNELS)
    return Block(min(values // b, power(rows)), b)


def width(length: int, most: int, least: int) -> int:
    """Return how wide tiles are along a length: the widest of those that hardly reach over its end."""
    least = min(least, most)
    if length <= least:
        return power(length)
    widths = [1 << exponent for exponent in range(most.bit_length() - 1, least.bit_length() - 2, -1)]
    covered = {width: -(-length // width) * width for width in widths}
    fitting = [width for width in widths if covered[width] <= _MOST_PADDING * length]
    return fitting[0] if fitting else min(widths, key=lambda width: covered[width])


def split(tiles: int, blocks: int, processors: int) -> tuple[int, int]:
    """Return how many tiles a part has, and how many parts a channel has, so that every multiprocessor has work.

    Args:
        tiles: Tiles of a channel.
        blocks: Blocks of channels.
        processors: Multiprocessors of the device.
    """
    parts = max(1, min(-(-PROGRAMS * processors // blocks), -(-tiles // STEPS), MOST_PARTS))
    each = -(-tiles // parts)
    return each, -(-tiles // each)


def power(number: int) -> int:
    """Return the next power of two."""
    return 1 << (number - 1).bit_length()
