"""Kernels in C++ with the activation in their epilogue."""

from __future__ import annotations

import math
from typing import ClassVar, Final

import torch

from ...engines.names import Pass
from ..hip.base import Gather, HipAlgorithm, Steps, readable
from ..hip.launching import prepare
from ..triton.calls import strides
from .base import Forward, FusedAlgorithm, quarantined
from .problem import FusedProblem

_LARGEST: Final = 2**31


class HipEpilogued(FusedAlgorithm):
    """A kernel of engine hip that activates its sums before it writes them: nothing is read or written twice."""

    engine: ClassVar[str] = "hip"

    def __init__(self, inner: HipAlgorithm) -> None:
        """Take the algorithm whose forward pass it is."""
        self.name, self.kernel, self.exact = inner.name, inner.kernel, inner.exact  # type: ignore[misc]
        self.inner = self._inner = inner

    def not_supported_reasons(self, problem: FusedProblem) -> list[str]:
        """Support what the algorithm supports."""
        return self._inner.not_supported_reasons(problem.conv) or quarantined(self, problem)

    def worth_measuring(self, problem: FusedProblem, which: Pass) -> bool:
        """Return what the algorithm says of its forward pass."""
        return self._inner.worth_measuring(problem.conv, which)

    def workspace_bytes(self, problem: FusedProblem) -> int:
        """Return the size of a packed weight."""
        return self._steps(problem).between * 4

    def bound(self, problem: FusedProblem, budget: int) -> Forward:
        """Return the launches."""
        return Gather(self._inner, problem.conv, False, problem.epilogue, _readable)

    def prepare(self, problem: FusedProblem, which: Pass) -> None:
        """Compile the launches for tensors that are not views."""
        steps = self._steps(problem)
        if steps.other is not None:
            prepare(steps.other, problem.device)
        prepare(steps.kernel, problem.device)

    def _steps(self, problem: FusedProblem) -> Steps:
        conv = problem.conv
        shapes = (conv.input_shape, conv.weight_shape, conv.output_shape)
        x, weight, y = (strides(shape, conv.channels_last) for shape in shapes)
        return self._inner.gather_steps(conv, False, x, weight, y, problem.epilogue)


def _readable(x: torch.Tensor) -> torch.Tensor:
    """Return an input that kernels read: a view as it is where its address and the distance of its samples allow it."""
    aligned = x.data_ptr() % (4 * x.element_size()) == 0
    near = x.stride(0) * (2 + 512 // max(1, math.prod(x.shape[2:]))) < _LARGEST  # as `hip_reasons` has it
    return x if aligned and near else readable(x)
