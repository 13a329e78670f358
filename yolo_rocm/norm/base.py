"""What a way to compute BatchNorm, alone or with an activation, has to offer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import torch

from ..engines.operator import BaseAlgorithm
from .problem import NormProblem

# Tells torch that a tensor was written to, by a kernel that torch does not know; before 2.1 nobody can.
count_write: Final[Callable[[torch.Tensor], Any]] = getattr(
    torch.autograd.graph, "increment_version", lambda tensor: None
)


class Parameters(NamedTuple):
    """What a BatchNorm layer holds, as the dispatcher passes it.

    Attributes:
        weight: Of each channel; None without affine parameters.
        bias: Of each channel; None without affine parameters.
        running_mean: Updated in place in training; None where nothing is tracked.
        running_var: Updated in place in training, by the unbiased variance; None where nothing is tracked.
        momentum: Share of the new value in the running ones.
        eps: Added to the variance.
        batches: `num_batches_tracked`, to be raised by one together with the running statistics; None where the caller
            has done that, as `torch.nn.BatchNorm2d` does.
    """

    weight: torch.Tensor | None
    bias: torch.Tensor | None
    running_mean: torch.Tensor | None
    running_var: torch.Tensor | None
    momentum: float
    eps: float
    batches: torch.Tensor | None = None


class Statistics(NamedTuple):
    """Of each channel, in `NormProblem.statistics_dtype`: what backward and recomputing need besides the input."""

    mean: torch.Tensor
    invstd: torch.Tensor


class NormGrads(NamedTuple):
    """Gradients; None where they are not wanted."""

    x: torch.Tensor | None
    weight: torch.Tensor | None
    bias: torch.Tensor | None


class NormBound(NamedTuple):
    """The passes of an algorithm for one problem: those of `NormAlgorithm`, without the problem."""

    forward: Callable[[torch.Tensor, Parameters], tuple[torch.Tensor, Statistics]]
    activate: Callable[[torch.Tensor, Parameters, Statistics], torch.Tensor]
    backward: Callable[[torch.Tensor, torch.Tensor, Parameters, Statistics, tuple[bool, bool, bool]], NormGrads]


class NormAlgorithm(BaseAlgorithm[NormProblem]):
    """A way to compute BatchNorm and the activation behind it.

    All tensors of the problem's shape come in its layout, and results leave in it. Sums have a fixed order: the same
    call gives the same bits. `activate` gives the very bits that `forward` gave.
    """

    def bound(self, problem: NormProblem) -> NormBound:
        """Return the passes for a problem that will be met again and again; some know a shorter way then."""
        forward, activate, backward = self.forward, self.activate, self.backward
        return NormBound(partial(forward, problem), partial(activate, problem), partial(backward, problem))

    @abstractmethod
    def forward(self, problem: NormProblem, x: torch.Tensor, p: Parameters) -> tuple[torch.Tensor, Statistics]:
        """Return the activation, and the statistics it was computed with; update the running ones in training."""

    @abstractmethod
    def activate(self, problem: NormProblem, x: torch.Tensor, p: Parameters, statistics: Statistics) -> torch.Tensor:
        """Return the activation once more, from the input and its statistics; nothing is updated."""

    @abstractmethod
    def backward(
        self,
        problem: NormProblem,
        grad: torch.Tensor,
        x: torch.Tensor,
        p: Parameters,
        statistics: Statistics,
        wanted: tuple[bool, bool, bool],
    ) -> NormGrads:
        """Return the gradients of input, weight and bias, from the input and its statistics.

        Args:
            problem: The problem.
            grad: Gradient of the activation.
            x: The input of forward.
            p: The layer's parameters; running statistics are not read here.
            statistics: What forward returned.
            wanted: Which gradients.
        """
