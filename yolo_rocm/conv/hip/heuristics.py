"""Which algorithm of engine hip to take before anything has been measured on this device."""

from __future__ import annotations

from ...engines.names import Pass
from ..problem import ConvProblem
from .tiles import TILES


def preferred(problem: ConvProblem, which: Pass) -> tuple[str, ...]:
    """Return names of algorithms for one pass of `problem`, best guess first: the tile with the least padding."""
    channels = (problem.in_channels if which == Pass.GRAD_INPUT else problem.out_channels) // problem.groups

    def cost(name: str) -> tuple[int, int]:
        gather, weight = TILES[name]
        tile = weight.m if which == Pass.GRAD_WEIGHT else gather.n
        return -(-channels // tile) * tile, -tile

    few = ("hip_few_channels",) if which == Pass.FORWARD else ()
    return ("hip_transposed", "hip_depthwise", *few, *(f"hip_{name}" for name in sorted(TILES, key=cost)))
