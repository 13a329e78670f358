"""What kernels of several operators compute of single values."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sigmoid_of(z, EXACT: tl.constexpr):
    """Return the sigmoid; 0 where exp overflows. What is rounded to half precision needs no exact division."""
    below = 1.0 + tl.exp(-z)
    if EXACT:
        result = 1.0 / below
    else:
        root = tl.rsqrt(below)
        result = root * root
    return result


@triton.jit
def activated(z, ACTIVATION: tl.constexpr, SLOPE: tl.constexpr, EXACT: tl.constexpr):
    """Return the activation of a value.

    Nothing here can be contracted with what comes before: every kernel that computes it gives the same bits.
    """
    if ACTIVATION == "silu":
        z = z * sigmoid_of(z, EXACT)
    elif ACTIVATION == "relu":
        z = tl.where(z < 0.0, 0.0, z)  # NaN stays NaN
    elif ACTIVATION == "leaky_relu":
        z = tl.where(z < 0.0, z * SLOPE, z)
    return z
