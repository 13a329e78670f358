"""Kernels in C++ with the activation in their epilogue: weights are packed once for a model, not for each call."""

from __future__ import annotations

import math
from typing import ClassVar, Final

import torch

from ...engines.hip.program import Launch
from ..hip.base import HipAlgorithm, Steps, readable
from ..hip.calls import Strides
from ..hip.launching import launch_of, prepare
from ..kernels.calls import strides
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

    def worth_measuring(self, problem: FusedProblem, which: str) -> bool:
        """Return what the algorithm says of its forward pass."""
        return self._inner.worth_measuring(problem.conv, which)

    def workspace_bytes(self, problem: FusedProblem) -> int:
        """Nothing: a packed weight is kept, and counts as one of the model's."""
        return 0

    def packed(self, problem: FusedProblem, weight: torch.Tensor) -> torch.Tensor:
        """Return the weight as the kernel reads it."""
        steps = self._steps(problem, strides(problem.conv.input_shape, False), weight.stride())
        if steps.other is None:
            return weight
        made = weight.new_empty(steps.between)
        launch_of(steps.other, problem.device)(weight.data_ptr(), made.data_ptr())
        return made

    def bound(self, problem: FusedProblem, budget: int) -> Forward:
        """Return the launch, remembered for each layout of the input."""
        shape, by = problem.conv.output_shape, strides(problem.conv.output_shape, problem.conv.channels_last)
        plain = strides(problem.conv.weight_shape, False)
        known: dict[tuple[Strides, Strides], Launch] = {}

        def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
            x = _readable(x)
            kind = (x.stride(), weight.stride())
            launch = known.get(kind)
            if launch is None:
                # A packed weight has lost its strides, and its kernel does not ask for them.
                steps = self._steps(problem, x.stride(), weight.stride() if weight.dim() == 4 else plain)
                launch = known[kind] = launch_of(steps.kernel, problem.device)
            y = x.new_empty_strided(shape, by)
            added = None if bias is None else bias.contiguous()
            launch(x.data_ptr(), weight.data_ptr(), 0 if added is None else added.data_ptr(), y.data_ptr())
            return y

        return run

    def prepare(self, problem: FusedProblem, which: str) -> None:
        """Compile the launch for tensors that are not views."""
        conv = problem.conv
        x, weight = (strides(shape, conv.channels_last) for shape in (conv.input_shape, conv.weight_shape))
        steps = self._steps(problem, x, weight)
        if steps.other is not None:
            prepare(steps.other, problem.device)
        prepare(steps.kernel, problem.device)

    def _steps(self, problem: FusedProblem, x: Strides, weight: Strides) -> Steps:
        out = strides(problem.conv.output_shape, problem.conv.channels_last)
        return self._inner.gather_steps(problem.conv, False, x, weight, out, problem.epilogue)


def _readable(x: torch.Tensor) -> torch.Tensor:
    """Return an input that kernels read: a view as it is where its address and the distance of its samples allow it."""
    aligned = x.data_ptr() % (4 * x.element_size()) == 0
    near = x.stride(0) * (2 + 512 // max(1, math.prod(x.shape[2:]))) < _LARGEST  # as `hip_reasons` has it
    return x if aligned and near else readable(x)
