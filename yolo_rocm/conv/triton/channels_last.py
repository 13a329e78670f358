"""NCHW in Triton by the kernels that read channels_last: a transposed copy of what is read comes first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch

from ...engines.names import Pass
from ...engines.triton.launch import Launch
from ..base import Bound, Grads, Wanted, quarantined
from ..launched import LaunchedAlgorithm, Passes, Shape
from ..problem import ConvProblem
from . import calls
from .calls import is_half
from .gemm import TritonGemm


class TritonChannelsLast(LaunchedAlgorithm):
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
        reasons += quarantined(self, problem)
        return ["already channels_last", *reasons] if problem.channels_last else reasons

    def worth_measuring(self, problem: ConvProblem, which: Pass) -> bool:
        """Return whether the table of what is measured has this size on a copy."""
        return self._inner.worth_measuring_on(problem, which, copied=True)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Copies of both operands of the gradient of the weight, and what is needed inside."""
        copies = math.prod(problem.input_shape) + math.prod(problem.output_shape)
        return copies * (2 if is_half(problem) else 4) + self._inner.workspace_bytes(problem)

    def weight_layout(self, problem: ConvProblem) -> torch.memory_format:
        """Return that of the algorithm inside."""
        return self._inner.weight_layout(problem)

    def made_passes(self, problem: ConvProblem) -> Passes:
        """Make the passes for a problem."""
        forward, grad_input, grad_weight = self._inner.passes(problem)
        turned_x, turned_grad = _turning(problem, problem.input_shape), _turning(problem, problem.output_shape)
        return Passes(
            lambda x, weight, bias: forward(turned_x(x), weight, bias),
            lambda grad, weight, bias: grad_input(turned_grad(grad), weight, bias),
            lambda grad, x, wide: grad_weight(turned_grad(grad), turned_x(x), wide),
        )

    def bound(self, problem: ConvProblem) -> Bound:
        """Return the passes with their launches at hand; both gradients read one copy of the output's."""
        forward, (_, grad_input, grad_weight) = self.passes(problem).forward, self._inner.passes(problem)
        turned_x, turned_grad = _turning(problem, problem.input_shape), _turning(problem, problem.output_shape)

        def backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: Wanted) -> Grads:
            grad = turned_grad(grad)
            # One after the other: the copy of the input is free again before the input's gradient is made.
            for_weight = grad_weight(grad, turned_x(x), True in wanted[2:]) if wanted[1] else None
            return grad_input(grad, weight, None) if wanted[0] else None, for_weight

        return Bound(forward, backward)

    def prepare(self, problem: ConvProblem, which: Pass) -> None:
        """Compile what a pass launches."""
        self._inner.prepare_reading(problem, which, channels_last=True)


def _turning(problem: ConvProblem, shape: Shape) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the copy of tensors of one shape into channels_last, with its launch at hand."""
    copy = Launch(("transpose", shape, problem.dtype, problem.device), calls.transpose(shape))

    def turned(x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x, memory_format=torch.channels_last)
        copy(x, y)
        return y

    return turned
