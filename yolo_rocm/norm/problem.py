"""One BatchNorm call as plain data, with the activation that is computed with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from ..engines.activations import ACTIVATIONS, IDENTITY, LEAKY_RELU, RELU, SILU

__all__ = ["ACTIVATIONS", "IDENTITY", "LEAKY_RELU", "RELU", "SILU", "NormProblem"]


@dataclass(frozen=True)
class NormProblem:
    """The shape of one BatchNorm call.

    Attributes:
        shape: Batch, channels, and any number of spatial sizes.
        dtype: Data type of the input, and of the result; parameters and statistics are at least fp32.
        device: Device of the input, for example `cuda:0`.
        channels_last: Layout of input and result: channels_last, otherwise contiguous.
        training: Whether the statistics are the batch's; otherwise the running ones.
        affine: Whether there are a weight and a bias.
        activation: What is computed of the normalised value, one of `ACTIVATIONS`.
        slope: Of a leaky ReLU below zero.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    channels_last: bool = False
    training: bool = True
    affine: bool = True
    activation: str = IDENTITY
    slope: float = 0.0

    @property
    def channels(self) -> int:
        """Channels."""
        return self.shape[1]

    @property
    def pixels(self) -> int:
        """Spatial size of one sample."""
        return math.prod(self.shape[2:])

    @property
    def rows(self) -> int:
        """Values of one channel in the whole batch."""
        return self.shape[0] * self.pixels

    @property
    def statistics_dtype(self) -> torch.dtype:
        """Data type that statistics are computed and kept in."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @property
    def flops(self) -> int:
        """Work of one pass, up to a factor: all of it goes by elements."""
        return 8 * math.prod(self.shape)

    @property
    def key(self) -> str:
        """Name of the problem on disk: without the device's number."""
        return str(replace(self, device=self.device.partition(":")[0]))

    def __str__(self) -> str:
        """Describe the problem in one line, as errors and tables show it."""
        act = "" if self.activation == IDENTITY else f" + {self.activation}"
        slope = f" {self.slope:g}" if self.activation == LEAKY_RELU else ""
        kind = "" if self.training else " with running statistics"
        plain = "" if self.affine else " without parameters"
        layout = " channels_last" if self.channels_last else ""
        sizes = "x".join(str(size) for size in self.shape)
        dtype = str(self.dtype).removeprefix("torch.")
        return f"batch norm{act}{slope}{kind}{plain} on {sizes} {dtype}{layout} {self.device}"
