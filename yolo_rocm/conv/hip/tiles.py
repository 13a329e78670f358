"""Tiles of the HIP kernels, as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class HipTile:
    """Sizes of a matrix product's tile, and what of it a thread computes.

    Attributes:
        m: Pixels (outputs in grad-weight).
        n: Outputs (taps x channels in grad-weight).
        k: Channels (pixels in grad-weight) of a step.
        tm: Of `m`, what a thread computes; a multiple of four, as is `tn`.
        tn: Of `n`.
        blocks: Blocks that a multiprocessor of NVIDIA has to have registers for.
        split_blocks: Blocks for each multiprocessor that the splits of grad-weight are made for.
    """

    m: int
    n: int
    k: int
    tm: int
    tn: int
    blocks: int = 1
    split_blocks: int = 4

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.m // self.tm * (self.n // self.tn)

    def defines(self) -> dict[str, int]:
        """Return the tile as a kernel's source names it."""
        return {"BM": self.m, "BN": self.n, "BK": self.k, "TM": self.tm, "TN": self.tn, "BLOCKS": self.blocks}

    def __str__(self) -> str:
        """Return the sizes, as in a table."""
        return f"{self.m}x{self.n}x{self.k}, {self.tm}x{self.tn} a thread"


# Tiles by name, which is that of the first: of forward and grad-input, and of grad-weight. They come from a sweep over
# the layers of yolov8n at batch 64 on an NVIDIA H200, in fp32 and both layouts: all tiles that were tried and left out
# would gain at most 1.3 % of a pass together. Steps of 8 channels in forward of 256x32 and of 16 pixels in grad-weight
# of 128x32 cost 1 % of all convolutions there; with twice as many, LDS left an RDNA card room for 3 waves of a SIMD, or
# 2. Compiled for RDNA cards (clang 19; hiprtc 5.2 for gfx1010 and gfx1030), none spills, and all have 4 waves or more.
# For gfx90a and gfx942, grad-weight of 256x32 in NCHW spills a few scalar registers.
TILES: Final[dict[str, tuple[HipTile, HipTile]]] = {
    "256x16": (HipTile(256, 16, 8, 8, 4, 4), HipTile(16, 32, 16, 4, 4, 16, 32)),
    "128x32": (HipTile(128, 32, 16, 8, 4, 4), HipTile(32, 32, 16, 4, 4, 8, 16)),
    "256x32": (HipTile(256, 32, 8, 8, 8, 3), HipTile(128, 64, 16, 8, 8, 3, 6)),
    "64x64": (HipTile(64, 64, 16, 8, 4, 4), HipTile(64, 64, 16, 8, 4, 4, 4)),
    "128x64": (HipTile(128, 64, 16, 8, 8, 4), HipTile(64, 128, 16, 8, 8, 3, 6)),
    "128x80": (HipTile(128, 80, 16, 4, 20, 3), HipTile(80, 128, 16, 20, 4, 3, 6)),
}


def fits(tile: int, channels: int) -> bool:
    """Return whether at most a third of the tiles that cover `channels` is padding; 16 are never too many."""
    covered = -(-channels // tile) * tile
    return covered <= max(16, channels * 3 // 2)
