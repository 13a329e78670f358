"""Depthwise convolutions of engine hip: each value is read once for all taps that meet it, as far as caches go."""

from __future__ import annotations

import math
from typing import ClassVar

from ...engines.devices import processors
from ..launched import Strides
from ..problem import ConvProblem
from . import calls
from .base import HipAlgorithm, PassCalls, hip_reasons
from .calls import HipCall

# Grad-weight keeps a sum for every tap: with more of them than this, registers run out.
_MOST_TAPS = 64


class HipDepthwise(HipAlgorithm):
    """A thread for each result, or for four channels of it, all taps inside."""

    name: ClassVar[str] = "hip_depthwise"
    kernel: ClassVar[str | None] = "hip_direct"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support one input and one output channel a group, and kernels of up to 64 taps."""
        reasons = []
        if not problem.groups == problem.in_channels == problem.out_channels or problem.groups == 1:
            which = f"{problem.in_channels}->{problem.out_channels} channels in {problem.groups} groups"
            reasons.append(f"{which} are not depthwise, one to one")
        if math.prod(problem.kernel) > _MOST_TAPS:
            reasons.append(f"{math.prod(problem.kernel)} taps are more than {_MOST_TAPS}")
        return reasons + hip_reasons(problem, self)

    def gather_steps(self, problem: ConvProblem, back: bool, src: Strides, weight: Strides, out: Strides) -> PassCalls:
        """Describe forward or grad-input."""
        return PassCalls(calls.depthwise(problem, src, weight, out, back))

    def weight_steps(self, problem: ConvProblem, grad: Strides, x: Strides) -> tuple[HipCall, int]:
        """Describe the partial sums of grad-weight."""
        return calls.depthwise_weight(problem, grad, x, processors(problem.device))
