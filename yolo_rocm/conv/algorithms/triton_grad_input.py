"""NCHW in Triton by the kernels that read channels_last: what is read is turned around first."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import torch

from ...engines.triton.launch import launch
from ..kernels import calls
from ..kernels.calls import is_half
from ..problem import ConvProblem
from .base import Algorithm
from .triton_common import struck_reasons
from .triton_gemm import TritonGemm, TritonRows, turning_is_untried


class TritonTurned(Algorithm):
    """NCHW through a channels_last copy of what is read; the result is written in NCHW at once.

    Half precision reads single channels two bytes at a time, and the gradient of the weight adds over pixels that lie
    side by side: turned around first, it took a third of the time on an NVIDIA H200, the turning included.
    """

    engine: ClassVar[str] = "triton"
    kernel: ClassVar[str | None] = "turned"

    def __init__(self, inner: TritonGemm) -> None:
        """Take the algorithm that reads channels_last."""
        self.name = f"{inner.name}_turned"  # type: ignore[misc]
        self._inner = inner

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve contiguous tensors."""
        reasons = self._inner.not_supported_reasons(problem)
        reasons += struck_reasons(problem, self)
        return ["already channels_last", *reasons] if problem.channels_last else reasons

    def worth_measuring(self, problem: ConvProblem, which: str) -> bool:
        """Be a candidate where turning has paid: half precision, and the gradient of every weight."""
        if which != "grad_weight" and not is_half(problem):
            return False
        plain = not isinstance(self._inner, TritonRows)
        if which == "grad_weight" and plain and problem.kernel[1] == 3 and turning_is_untried(problem, which):
            return False  # rows of taps are tried turned around, single taps as they lie
        return self._inner.worth_measuring(replace(problem, channels_last=True), which)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Both turned operands of the gradient of the weight, and what is needed inside."""
        turned = math.prod(problem.input_shape) + math.prod(problem.output_shape)
        return turned * (2 if is_half(problem) else 4) + self._inner.workspace_bytes(problem)

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        return self._inner.forward(problem, _turned(x), weight, bias)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        return self._inner.grad_input(problem, _turned(grad), weight)

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        return self._inner.grad_weight(problem, _turned(grad), _turned(x))

    def prepare(self, problem: ConvProblem, which: str) -> None:
        """Compile what a pass launches."""
        self._inner.prepare_reading(problem, which, channels_last=True)


def _turned(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x, memory_format=torch.channels_last)
    shape = tuple(x.shape)
    launch(("turn", shape, x.dtype, str(x.device)), lambda: calls.turn(shape), (x, y))
    return y
