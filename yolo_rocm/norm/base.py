"""What a way to compute BatchNorm, alone or with an activation, has to offer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from ..engines.operator import BaseAlgorithm
from ..engines.trust.record import quarantine_reasons
from .problem import NormProblem

Wanted = tuple[bool, bool, bool]  # which gradients: of input, weight and bias

# Tells torch that a tensor was written to, by a kernel that torch does not know; before 2.1 nobody can.
count_write: Final[Callable[[Tensor], Any]] = getattr(torch.autograd.graph, "increment_version", lambda tensor: None)


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

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None
    momentum: float
    eps: float
    batches: Tensor | None = None


class Statistics(NamedTuple):
    """Of each channel, in `NormProblem.statistics_dtype`: what backward and recomputing need besides the input."""

    mean: Tensor
    invstd: Tensor


class NormGrads(NamedTuple):
    """Gradients; None where they are not wanted."""

    x: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


class NormBound(NamedTuple):
    """The passes of an algorithm for one problem: those of `NormAlgorithm`, without the problem."""

    forward: Callable[[Tensor, Parameters], tuple[Tensor, Statistics]]
    activate: Callable[[Tensor, Parameters, Statistics], Tensor]
    backward: Callable[[Tensor, Tensor, Parameters, Statistics, Wanted], NormGrads]


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
    def forward(self, problem: NormProblem, x: Tensor, p: Parameters) -> tuple[Tensor, Statistics]:
        """Return the activation, and the statistics it was computed with; update the running ones in training."""

    @abstractmethod
    def activate(self, problem: NormProblem, x: Tensor, p: Parameters, statistics: Statistics) -> Tensor:
        """Return the activation once more, from the input and its statistics; nothing is updated."""

    @abstractmethod
    def backward(
        self, problem: NormProblem, grad: Tensor, x: Tensor, p: Parameters, statistics: Statistics, wanted: Wanted
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


class LaunchedNorm(NormAlgorithm):
    """An algorithm whose kernels are ours: `bound` has their launches at hand, and every pass goes through it."""

    @abstractmethod
    def bound(self, problem: NormProblem) -> NormBound:
        """Return the passes with their launches at hand."""

    def forward(self, problem: NormProblem, x: Tensor, p: Parameters) -> tuple[Tensor, Statistics]:
        """Return the activation and the statistics; update the running ones in training."""
        return self.bound(problem).forward(x, p)

    def activate(self, problem: NormProblem, x: Tensor, p: Parameters, statistics: Statistics) -> Tensor:
        """Return the activation once more, by the kernel that forward computes it with."""
        return self.bound(problem).activate(x, p, statistics)

    def backward(
        self, problem: NormProblem, grad: Tensor, x: Tensor, p: Parameters, statistics: Statistics, wanted: Wanted
    ) -> NormGrads:
        """Return the gradients."""
        return self.bound(problem).backward(grad, x, p, statistics, wanted)

    def reasons(self, problem: NormProblem, is_too_large: bool, missing: str | None) -> list[str]:
        """Return why kernels of ours do not support a problem; that of the device comes last.

        Args:
            problem: The problem.
            is_too_large: Whether there are more values than the kernels count.
            missing: Why nothing can be launched on the device, if so.
        """
        reasons = []
        if problem.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            reasons.append(f"dtype {problem.dtype} is not float32, float16 or bfloat16")
        if problem.rows * problem.channels == 0:
            reasons.append("there are no values")
        if is_too_large:
            reasons.append("there are more values than 32 bits count")
        return [*reasons, missing] if missing else reasons + quarantine_reasons("norm", self, problem)
