"""Convolutions of engine `hip`: kernels in C++ for HIP and CUDA, next to the algorithms that launch them.

A source (`*.hip.cpp`) is one kernel, compiled at run time after the engine's prelude and with its tile, layout and data
type as defines. `calls` describes launches, without a device; `base` has the three passes, `tiles` the tables; each
other module is an algorithm. Nothing here is imported by kernels' users but `algorithms` and `heuristics`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..algorithms.base import Algorithm


def algorithms() -> list[Algorithm]:
    """Return the algorithms of the engine; no compiler is looked for and no device queried."""
    from .depthwise import HipDepthwise
    from .few_channels import HipFewChannels
    from .gemm import HipGemm
    from .tiles import TILES
    from .transposed import HipTransposed
    from .winograd import HipWinograd

    tiles = [HipGemm(name, *pair) for name, pair in TILES.items()]
    return [HipDepthwise(), HipFewChannels(), *tiles, HipWinograd(), HipTransposed(tiles[-1:])]


# The table of algorithms comes first, whichever module of this package is imported: it asks for the list above.
from ..algorithms import base as _base  # noqa: E402, F401
