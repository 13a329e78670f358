"""What an algorithm is: a name, the reasons why it cannot serve a problem, and the three passes of a convolution."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch

from ..problem import ConvProblem

Grads = tuple["torch.Tensor | None", "torch.Tensor | None"]


class Algorithm(ABC):
    """One way to compute a convolution.

    A subclass is stateless: one instance serves every layer, thread and device. `budget` is the workspace in bytes that
    a pass may take beside its result; passes split their work over the batch to stay inside it, down to one sample.
    """

    name: ClassVar[str]
    engine: ClassVar[str]

    @abstractmethod
    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Say why this algorithm cannot serve `problem`; an empty list means it can."""

    @abstractmethod
    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Largest workspace of the three passes beside their results, before any split over the batch."""

    @abstractmethod
    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, budget: int
    ) -> torch.Tensor:
        """Compute the output."""

    @abstractmethod
    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor, budget: int) -> torch.Tensor:
        """Compute the gradient of the input from the gradient of the output."""

    @abstractmethod
    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor, budget: int) -> torch.Tensor:
        """Compute the gradient of the weight from the gradient of the output."""

    def backward(
        self,
        problem: ConvProblem,
        grad: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor,
        wanted: tuple[bool, bool],
        budget: int,
    ) -> Grads:
        """Compute both gradients, those that are wanted. Native kernels override this: one call serves both."""
        return (
            self.grad_input(problem, grad, weight, budget) if wanted[0] else None,
            self.grad_weight(problem, grad, x, budget) if wanted[1] else None,
        )


def dtype_reasons(problem: ConvProblem) -> list[str]:
    """Reason shared by all GEMM algorithms: they multiply floating-point matrices."""
    return [] if problem.dtype.is_floating_point else [f"dtype {problem.dtype} is not floating point"]


def compute_dtype(problem: ConvProblem) -> torch.dtype:
    """Return the dtype to compute in: half precision on a CPU is widened, where GEMMs round often or do not exist."""
    half = problem.dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if half and problem.device.startswith("cpu") else problem.dtype


def element_bytes(problem: ConvProblem) -> int:
    """Size of one element of a workspace."""
    return torch.finfo(compute_dtype(problem)).bits // 8


def batch_slices(problem: ConvProblem, bytes_per_sample: int, budget: int) -> Iterator[slice]:
    """Cut the batch so that `bytes_per_sample` times a cut's samples stays inside `budget`, never below one sample."""
    step = max(1, min(problem.batch, budget // max(1, bytes_per_sample)))
    for start in range(0, problem.batch, step):
        yield slice(start, min(start + step, problem.batch))


def column_bytes(problem: ConvProblem) -> int:
    """Bytes of the column matrix of one sample: every input window written out."""
    columns = problem.in_channels * math.prod(problem.kernel) * math.prod(problem.output_size)
    return columns * element_bytes(problem)
