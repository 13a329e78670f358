"""Implicit GEMMs of engine hip, an algorithm for each pair of tiles: the tuner chooses tiles like algorithms."""

from __future__ import annotations

import math
from typing import ClassVar

from ...engines.devices import processors
from ...engines.names import Pass
from ..launched import Strides
from ..problem import ConvProblem
from . import calls
from .base import HipAlgorithm, PassCalls, hip_reasons
from .calls import HipCall
from .tiles import HipTile, fits


class HipGemm(HipAlgorithm):
    """Pixels x channels tiles; addresses are computed for each tap, nothing is copied but the weight."""

    kernel: ClassVar[str | None] = "hip_gemm"

    def __init__(self, name: str, gather: HipTile, weight: HipTile) -> None:
        """Take the tile of forward and grad-input, and that of grad-weight."""
        self.name = f"hip_{name}"  # type: ignore[misc]
        self.gather, self.weight = gather, weight

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support two-dimensional convolutions of fp32, fp16 and bf16."""
        return hip_reasons(problem, self)

    def worth_measuring(self, problem: ConvProblem, which: Pass) -> bool:
        """Return whether the tile fits the layer's channels without much padding."""
        if problem.groups > 1 and problem.in_channels == problem.groups:
            return False
        channels, outputs = problem.group_channels
        if which == "grad_weight":
            width = channels * math.prod(problem.kernel)
            return fits(self.weight.m, outputs) and fits(self.weight.n, width)
        return fits(self.gather.n, outputs if which == Pass.FORWARD else channels)

    def gather_steps(self, problem: ConvProblem, back: bool, src: Strides, weight: Strides, out: Strides) -> PassCalls:
        """Describe forward or grad-input, and the packing of the weight before it."""
        kernel = calls.gather_gemm(problem, src, out, self.gather, back)
        pack = calls.pack_weight(problem, weight, self.gather, back)
        return PassCalls(kernel, pack, math.prod(calls.packed_shape(problem, self.gather, back)))

    def weight_steps(self, problem: ConvProblem, grad: Strides, x: Strides) -> tuple[HipCall, int]:
        """Describe the partial sums of grad-weight."""
        return calls.grad_weight(problem, grad, x, self.weight, processors(problem.device))
