"""NCHW in Triton by the kernels that read channels_last: a transposed copy of what is read comes first."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import ClassVar

import torch

from ...engines.names import Pass
from ...engines.triton.launch import Launch, launch
from ..base import Algorithm, Bound, Grads, Wanted, quarantined
from ..problem import ConvProblem
from . import calls
from .calls import is_half
from .gemm import TritonGemm


class TritonChannelsLast(Algorithm):
    """NCHW through a channels_last copy of what is read; the result is written in NCHW at once.

    Half precision reads single channels two bytes at a time, and the gradient of the weight adds over pixels that are
    contiguous: from a copy, it took a third of the time on an NVIDIA H200, the copy included.
    """

    engine: ClassVar[str] = "triton"
    kernel: ClassVar[str | None] = "transpose"
    activates: ClassVar[bool] = True

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

    def weight_layout(self, problem: ConvProblem) -> torch.memory_format:
        """Return that of the algorithm inside."""
        return self._inner.weight_layout(problem)

    def bound(self, problem: ConvProblem) -> Bound:
        """Return the passes with their launches at hand; both gradients read one copy of the output's."""
        forward_of, backward_of = self._inner.bound(problem)
        turned_input, turned_grad = _turning(problem, problem.input_shape), _turning(problem, problem.output_shape)

        def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
            return forward_of(turned_input(x), weight, bias)

        def backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: Wanted) -> Grads:
            grad = turned_grad(grad)
            # One after the other: the copy of the input is free again before the input's gradient is made.
            only_weight = (False, *wanted[1:])
            for_weight = backward_of(grad, turned_input(x), weight, only_weight)[1] if wanted[1] else None
            return backward_of(grad, x, weight, (True, False))[0] if wanted[0] else None, for_weight

        return Bound(forward, backward)

    def prepare(self, problem: ConvProblem, which: Pass) -> None:
        """Compile what a pass launches."""
        self._inner.prepare_reading(problem, which, channels_last=True)


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x, memory_format=torch.channels_last)
    shape = tuple(x.shape)
    launch(_key(shape, x.dtype, str(x.device)), lambda: calls.transpose(shape), (x, y))
    return y


def _turning(problem: ConvProblem, shape: tuple[int, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return `_channels_last` for tensors of one shape, with its launch at hand."""
    copy = Launch(_key(shape, problem.dtype, problem.device), calls.transpose(shape))

    def turned(x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x, memory_format=torch.channels_last)
        copy(x, y)
        return y

    return turned


def _key(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Hashable:
    return ("transpose", shape, dtype, device)
