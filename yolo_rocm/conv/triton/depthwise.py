"""Depthwise convolutions in Triton: each value is read once for all taps that meet it, as far as caches go."""

from __future__ import annotations

import math
from typing import ClassVar

from ...engines.devices import processors
from ...engines.triton.available import family
from ...engines.triton.call import Call
from ..launched import Strides
from ..problem import ConvProblem
from . import calls
from .base import TritonAlgorithm
from .calls import is_half
from .common import triton_reasons
from .tiles import DepthwiseBlock, block

# Grad-weight keeps a sum for every tap: with more of them than this, registers run out.
_MOST_TAPS = 64


class TritonDepthwise(TritonAlgorithm):
    """One program for a block of pixels and channels, all taps inside."""

    name: ClassVar[str] = "triton_depthwise"
    kernel: ClassVar[str | None] = "depthwise"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support one input channel a group, and kernels of up to 64 taps."""
        reasons = []
        if problem.groups != problem.in_channels or problem.groups == 1:
            reasons.append(f"{problem.in_channels} channels in {problem.groups} groups are not depthwise")
        if math.prod(problem.kernel) > _MOST_TAPS:
            reasons.append(f"{math.prod(problem.kernel)} taps are more than {_MOST_TAPS}")
        return reasons + triton_reasons(problem, self)

    def gather_call(
        self, problem: ConvProblem, back: bool, src: Strides, weight: Strides, out: Strides, bias: bool
    ) -> Call:
        """Describe forward or grad-input."""
        return calls.depthwise(problem, src, weight, out, bias, _block(problem), back)

    def grad_weight_call(self, problem: ConvProblem, grad: Strides, x: Strides) -> tuple[Call, int]:
        """Describe the partial sums of the gradient of the weight."""
        return calls.depthwise_weight(problem, grad, x, _block(problem), processors(problem.device))


def _block(problem: ConvProblem) -> DepthwiseBlock:
    return block(family(problem.device), problem.channels_last, is_half(problem), math.prod(problem.kernel))
