"""ConvTranspose with the roles swapped: its forward is an ordinary convolution's grad-input, and vice versa."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F

from ..problem import ConvProblem
from .base import Algorithm, dtype_reasons


class Transposed(Algorithm):
    """Serve a transposed convolution through the first algorithm that serves its ordinary counterpart."""

    name: ClassVar[str] = "transposed"
    engine: ClassVar[str] = "gemm"

    def __init__(self, direct_algorithms: Sequence[Algorithm]) -> None:
        """Take the algorithms for ordinary convolutions, best first."""
        self._direct_algorithms = tuple(direct_algorithms)

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve transposed convolutions of floating-point tensors."""
        return [*dtype_reasons(problem), *([] if problem.transposed else ["not transposed"])]

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Whatever the ordinary counterpart takes."""
        direct = problem.direct()
        return self._serving(direct).workspace_bytes(direct)

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, budget: int
    ) -> torch.Tensor:
        """Compute the output."""
        direct = problem.direct()
        out = self._serving(direct).grad_input(direct, _fit(x, direct), weight, budget)
        return out if bias is None else out.add_(bias.view(-1, *[1] * len(problem.kernel)))

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor, budget: int) -> torch.Tensor:
        """Compute the gradient of the input."""
        direct = problem.direct()
        full = self._serving(direct).forward(direct, grad, weight, None, budget)
        inner = (slice(None), slice(None), *(slice(i) for i in problem.input_size))
        return full[inner]

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor, budget: int) -> torch.Tensor:
        """Compute the gradient of the weight."""
        direct = problem.direct()
        return self._serving(direct).grad_weight(direct, _fit(x, direct), grad, budget)

    def _serving(self, direct: ConvProblem) -> Algorithm:
        return next(a for a in self._direct_algorithms if not a.not_supported_reasons(direct))


def _fit(x: torch.Tensor, direct: ConvProblem) -> torch.Tensor:
    """Pad `x` with zeros to the ordinary convolution's output, which is larger when output_padding >= stride."""
    missing = [want - have for want, have in zip(direct.output_size, x.shape[2:], strict=True)]
    if not any(missing):
        return x
    return F.pad(x, [n for m in reversed(missing) for n in (0, m)])
