"""NCHW in Triton by the kernels that read channels_last: a transposed copy of what is read comes first."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from ...engines.triton.launch import launch
from ..kernels import calls
from ..kernels.calls import is_half
from ..problem import ConvProblem
from .base import Algorithm
from .triton_common import quarantine_reasons
from .triton_gemm import TritonGemm


class TritonChannelsLast(Algorithm):
    """NCHW through a channels_last copy of what is read; the result is written in NCHW at once.

    Half precision reads single channels two bytes at a time, and the gradient of the weight adds over pixels that are
    contiguous: from a copy, it took a third of the time on an NVIDIA H200, the copy included.
    """

    engine: ClassVar[str] = "triton"
    kernel: ClassVar[str | None] = "transpose"

    def __init__(self, inner: TritonGemm) -> None:
        """Take the algorithm that reads channels_last."""
        self.name = f"{inner.name}_turned"  # type: ignore[misc]  # as plan files have it
        self._inner = inner

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support contiguous tensors."""
        reasons = self._inner.not_supported_reasons(problem)
        reasons += quarantine_reasons(problem, self)
        return ["already channels_last", *reasons] if problem.channels_last else reasons

    def worth_measuring(self, problem: ConvProblem, which: str) -> bool:
        """Return whether the table of what is measured has this size on a copy."""
        return self._inner.worth_measuring_on(problem, which, copied=True)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Copies of both operands of the gradient of the weight, and what is needed inside."""
        copies = math.prod(problem.input_shape) + math.prod(problem.output_shape)
        return copies * (2 if is_half(problem) else 4) + self._inner.workspace_bytes(problem)

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        return self._inner.forward(problem, _channels_last(x), weight, bias)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        return self._inner.grad_input(problem, _channels_last(grad), weight)

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        return self._inner.grad_weight(problem, _channels_last(grad), _channels_last(x))

    def prepare(self, problem: ConvProblem, which: str) -> None:
        """Compile what a pass launches."""
        self._inner.prepare_reading(problem, which, channels_last=True)


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x, memory_format=torch.channels_last)
    shape = tuple(x.shape)
    launch(("transpose", shape, x.dtype, str(x.device)), lambda: calls.transpose(shape), (x, y))
    return y
