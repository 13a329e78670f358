"""One convolution with its activation as plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ...engines.activations import IDENTITY, LEAKY_RELU
from ..problem import ConvProblem
from ..triton.calls import PLAIN, Epilogue


@dataclass(frozen=True)
class FusedProblem:
    """A convolution and what follows it.

    Attributes:
        conv: The convolution; its `channels_last` is the layout of the result.
        bias: Whether there is one.
        epilogue: The activation.
    """

    conv: ConvProblem
    bias: bool = True
    epilogue: Epilogue = PLAIN

    @property
    def device(self) -> str:
        """Device of the tensors."""
        return self.conv.device

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the tensors."""
        return self.conv.dtype

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return self.conv.flops

    @property
    def key(self) -> str:
        """Name on disk."""
        return f"{self.conv.key} {self._behind}"

    @property
    def _behind(self) -> str:
        activation, slope = self.epilogue
        words = ["bias"] if self.bias else []
        words += (
            [f"{activation} {slope:g}" if activation == LEAKY_RELU else activation] if activation != IDENTITY else []
        )
        return " ".join(["with", *words]) if words else "alone"

    def of(self, conv: ConvProblem) -> FusedProblem:
        """Return the same with another convolution."""
        return replace(self, conv=conv)

    def __str__(self) -> str:
        """Describe the problem in one line."""
        return f"{self.conv} {self._behind}"
