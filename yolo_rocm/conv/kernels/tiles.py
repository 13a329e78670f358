"""The curated tiles: which sizes each family of GPUs is given to choose from.

NVIDIA's come from a sweep over the layers of yolov8n, yolo11n and yolo26n at batch 64 on an H200: all tiles that were
tried and left out would gain at most 2 % of a pass together. Those of AMD families were compiled, never timed:
none of them spills registers (`offline`), and the accumulators a thread holds stay near those of the H200's winners.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

NVIDIA, FMA, WMMA, MFMA = "nvidia", "fma", "wmma", "mfma"
FAMILIES: Final = (NVIDIA, FMA, WMMA, MFMA)
SIZES: Final = ("s", "m", "l", "xl")
ROW_SIZES: Final = SIZES[:3]


@dataclass(frozen=True)
class Tile:
    """Sizes of a tile, and how it is spread over a multiprocessor.

    Attributes:
        m: Pixels (output channels in grad-weight).
        n: Channels (taps x input channels in grad-weight).
        k: Inner dimension of one step: channels (pixels in grad-weight).
        warps: Warps, or wavefronts, of a program.
        stages: Steps whose loads are under way at once.
    """

    m: int
    n: int
    k: int
    warps: int = 4
    stages: int = 1

    def __str__(self) -> str:
        """Return the sizes, as in a table."""
        return f"{self.m}x{self.n}x{self.k}, {self.warps} warps, {self.stages} stages"


@dataclass(frozen=True)
class Block:
    """Pixels and channels of a depthwise tile: of forward and grad-input, and of grad-weight.

    Attributes:
        pixels: Of forward and grad-input; so are `channels` and `warps`.
        weight_pixels: Of a step of grad-weight; so are `weight_channels` and `weight_warps`.
        weight_programs: Programs of grad-weight for each multiprocessor.
    """

    pixels: int
    channels: int
    warps: int
    weight_pixels: int
    weight_channels: int
    weight_warps: int
    weight_programs: int

    def __str__(self) -> str:
        """Return the sizes, as in a table."""
        weight = f"weight {self.weight_pixels}x{self.weight_channels}, {self.weight_warps} warps"
        return f"{self.pixels}x{self.channels}, {self.warps} warps, {weight}"


@dataclass(frozen=True)
class Tiles:
    """The tiles of one family and precision, by the size in an algorithm's name."""

    gather: dict[str, Tile]
    weight: dict[str, Tile]
    rows: dict[str, Tile]
    flat: Tile


def _tiles(gather: tuple[Tile, ...], weight: tuple[Tile, ...], rows: tuple[Tile, ...], flat: Tile) -> Tiles:
    return Tiles(
        dict(zip(SIZES, gather, strict=True)),
        dict(zip(SIZES, weight, strict=True)),
        dict(zip(ROW_SIZES, rows, strict=True)),
        flat,
    )


# family -> (fp32, half precision)
_TABLE: Final = {
    NVIDIA: (
        _tiles(
            (Tile(256, 16, 16, 4, 3), Tile(128, 32, 16, 4, 3), Tile(64, 64, 16, 4, 3), Tile(128, 64, 16, 4, 3)),
            (Tile(16, 32, 64, 4, 3), Tile(16, 64, 32, 4, 3), Tile(32, 32, 32, 4, 3), Tile(64, 64, 16, 4, 3)),
            (Tile(16, 16, 64, 4, 3), Tile(32, 32, 16, 2, 3), Tile(32, 32, 32, 4, 3)),
            Tile(256, 16, 32, 4, 2),
        ),
        _tiles(
            (Tile(256, 16, 16, 4, 4), Tile(128, 32, 32, 4, 3), Tile(128, 64, 32, 4, 3), Tile(128, 128, 32, 4, 4)),
            (Tile(16, 32, 128, 4, 3), Tile(32, 64, 64, 4, 3), Tile(64, 64, 64, 4, 3), Tile(128, 128, 32, 8, 3)),
            (Tile(16, 16, 128, 4, 3), Tile(32, 32, 64, 4, 3), Tile(64, 64, 64, 4, 3)),
            Tile(256, 16, 32, 4, 2),
        ),
    ),
    # No matrix units, half precision is widened: what holds for fp32 holds for it.
    FMA: (
        _tiles(
            (Tile(128, 16, 16), Tile(64, 32, 16), Tile(64, 64, 16, 8), Tile(128, 64, 8, 8)),
            (Tile(16, 32, 32), Tile(32, 32, 16), Tile(64, 32, 16), Tile(64, 64, 16, 8)),
            (Tile(16, 16, 32), Tile(32, 32, 16), Tile(32, 32, 16, 8)),
            Tile(128, 16, 16),
        ),
    )
    * 2,
    WMMA: (
        _tiles(
            (Tile(128, 16, 16), Tile(64, 32, 16), Tile(64, 64, 16, 8), Tile(128, 64, 8, 8)),
            (Tile(16, 32, 32), Tile(32, 32, 16), Tile(64, 32, 16), Tile(64, 64, 16, 8)),
            (Tile(16, 16, 32), Tile(32, 32, 16), Tile(32, 32, 16, 8)),
            Tile(128, 16, 16),
        ),
        _tiles(
            (Tile(128, 16, 32), Tile(128, 32, 32), Tile(64, 64, 32), Tile(128, 64, 32, 8)),
            (Tile(16, 32, 64), Tile(32, 64, 32), Tile(64, 64, 32), Tile(128, 64, 32, 8)),
            (Tile(16, 16, 64), Tile(32, 32, 32), Tile(64, 32, 32)),
            Tile(128, 16, 32),
        ),
    ),
    MFMA: (
        _tiles(
            (Tile(256, 16, 16, 4, 2), Tile(128, 32, 16, 4, 2), Tile(64, 64, 16, 4, 2), Tile(128, 64, 16, 4, 2)),
            (Tile(16, 64, 32, 4, 2), Tile(32, 32, 32, 4, 2), Tile(64, 64, 16, 4, 2), Tile(128, 64, 16, 4, 2)),
            (Tile(16, 16, 64, 4, 2), Tile(32, 32, 32, 4, 2), Tile(64, 64, 16, 4, 2)),
            Tile(256, 16, 32, 4, 2),
        ),
        _tiles(
            (Tile(256, 16, 32, 4, 2), Tile(128, 32, 32, 4, 2), Tile(128, 64, 32, 4, 2), Tile(128, 128, 32, 4, 2)),
            (Tile(16, 32, 128, 4, 2), Tile(32, 64, 64, 4, 2), Tile(64, 64, 32, 4, 2), Tile(128, 128, 32, 8, 2)),
            (Tile(16, 16, 64, 4, 2), Tile(32, 32, 64, 4, 2), Tile(64, 64, 32, 4, 2)),
            Tile(256, 16, 32, 4, 2),
        ),
    ),
}


def tiles(family: str, half: bool) -> Tiles:
    """Return the tiles of a family, for fp32 or for half precision."""
    return _TABLE[family][half]


# Kernels of this many taps are unrolled by LLVM with the loads of all taps under way at once: with a whole tile of
# pixels they need more registers than there are (compiled for gfx1030; 7 x 7 stays a loop).
_UNROLLED: Final = range(10, 37)
# (channels_last, half precision) -> block. NVIDIA's come from a sweep over the depthwise layers of yolo11n at batch 64
# on an H200: several channels in a thread share the work of finding its pixels. With as much in a lane, AMD's spill:
# theirs hold about half of it, and were compiled, never timed.
_BLOCKS: Final = {
    (False, False): Block(128, 8, 2, 128, 4, 1, 16),
    (False, True): Block(256, 8, 2, 128, 4, 1, 16),
    (True, False): Block(32, 32, 2, 64, 32, 1, 8),
    (True, True): Block(32, 64, 2, 32, 32, 1, 8),
}
_AMD_BLOCKS: Final = {
    (False, False): Block(256, 4, 4, 128, 4, 2, 16),
    (False, True): Block(256, 4, 4, 128, 4, 2, 16),
    (True, False): Block(32, 32, 4, 32, 32, 2, 8),
    (True, True): Block(64, 32, 4, 32, 32, 2, 8),
}


def block(family: str, channels_last: bool, half: bool, taps: int = 9) -> Block:
    """Return the depthwise tile of a family; those of AMD have one: it moves bytes, and bytes move alike."""
    known = (_BLOCKS if family == NVIDIA else _AMD_BLOCKS)[channels_last, half]
    return replace(known, pixels=known.pixels // 4) if taps in _UNROLLED else known
