"""Activations that kernels compute together with what comes before: their names, and torch's own functions of them."""

from __future__ import annotations

from typing import Final

import torch
from torch.nn import functional

IDENTITY, SILU, RELU, LEAKY_RELU = "identity", "silu", "relu", "leaky_relu"
ACTIVATIONS: Final = (IDENTITY, SILU, RELU, LEAKY_RELU)


def activate_in_place(y: torch.Tensor, activation: str, slope: float = 0.0) -> torch.Tensor:
    """Compute an activation by torch's own function in the memory of its input, and return that.

    Args:
        y: The values.
        activation: One of `ACTIVATIONS`.
        slope: Of a leaky ReLU below zero.
    """
    if activation == SILU:
        return functional.silu(y, inplace=True)
    return y if activation == IDENTITY else functional.leaky_relu_(y, slope if activation == LEAKY_RELU else 0.0)
