"""The contract of a candidate."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final

import torch

from ...engines.operator import BaseAlgorithm
from ...engines.trust.record import quarantine_reasons
from ..algorithms import Algorithm
from .problem import FusedProblem

NAME: Final = "fused"  # of the operator, on disk and in quarantine
Forward = Callable[[torch.Tensor, torch.Tensor, "torch.Tensor | None"], torch.Tensor]


class FusedAlgorithm(BaseAlgorithm[FusedProblem]):
    """One way to compute a convolution and its activation."""

    inner: Algorithm  # the convolution's own, whose forward pass it is

    @abstractmethod
    def bound(self, problem: FusedProblem, budget: int) -> Forward:
        """Return the pass for a problem, a function of input, weight and bias, in `budget` bytes of workspace.

        Inputs may be views, such as some channels of a tensor.
        """


def quarantined(algorithm: FusedAlgorithm, problem: FusedProblem) -> list[str]:
    """Return why an algorithm's kernel or tile is not used on the device any more."""
    return quarantine_reasons(NAME, algorithm, problem)
