"""Few input channels, such as those of an image: no tile of channels would be full."""

from __future__ import annotations

import math
from typing import ClassVar

from ...engines.names import Pass
from ..launched import Strides
from ..problem import ConvProblem
from . import calls
from .base import PassCalls, hip_reasons
from .gemm import HipGemm
from .tiles import TILES

# A thread holds the values of a channel under its pixels, and the weights of all channels lie in shared memory.
_MOST_TAPS = 25
_MOST_VALUES = 128


class HipFewChannels(HipGemm):
    """All values under a pixel in registers, in the forward pass; the gradients are those of the smallest tiles."""

    kernel: ClassVar[str | None] = "hip_few"

    def __init__(self) -> None:
        """Use the smallest tiles for the gradients."""
        super().__init__("few_channels", *TILES["256x16"])

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support up to 25 taps, and 128 taps and channels together, without groups."""
        reasons = []
        taps = math.prod(problem.kernel)
        if taps > _MOST_TAPS or taps * problem.in_channels > _MOST_VALUES:
            reasons.append(f"{taps} taps of {problem.in_channels} channels are more than a thread holds")
        if problem.groups != 1:
            reasons.append(f"groups is {problem.groups}, not 1")
        return reasons + hip_reasons(problem, self)

    def worth_measuring(self, problem: ConvProblem, which: Pass) -> bool:
        """Return whether it is the forward pass; the others are the plain tiles'."""
        return which == Pass.FORWARD

    def gather_steps(self, problem: ConvProblem, back: bool, src: Strides, weight: Strides, out: Strides) -> PassCalls:
        """Describe forward by this kernel, grad-input by the plain one."""
        if back:
            return super().gather_steps(problem, back, src, weight, out)
        return PassCalls(calls.few_channels(problem, src, weight, out))
