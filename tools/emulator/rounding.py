"""Floating point as the hardware rounds it: fused multiply-add, bf16, conversions to integers.

The modes are those that every kernel here is compiled for: round to nearest even, denormals kept. A kernel that asks
for others is refused at its launch.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .waves import Array

_F32_HALFWAY: Final = np.uint64(1 << 28)  # of the 29 bits that fp64 has and fp32 has not
_F32_REST: Final = np.uint64((1 << 29) - 1)
_F32_SMALLEST_NORMAL: Final = 2.0**-126


def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """Return a b + c rounded once to fp32."""
    return sum_to_f32(a.astype(np.float64) * b, c)  # the product is exact: 24 bits by 24 bits


def sum_to_f32(product: Array, addend: Array) -> Array:
    """Return the sum of two numbers of fp64, rounded once to fp32."""
    total = product + addend
    # Rounded twice, first to fp64, it is wrong only where the first result lies halfway between two of fp32, or where
    # those are denormal and lie elsewhere.
    doubtful = (total.view(np.uint64) & _F32_REST) == _F32_HALFWAY
    if doubtful.any() or ((np.abs(total) < _F32_SMALLEST_NORMAL) & (total != 0)).any():
        total = _to_odd(product, np.broadcast_to(addend, total.shape).astype(np.float64), total)
    return np.asarray(total.astype(np.float32))


def _to_odd(product: Array, addend: Array, total: Array) -> Array:
    """Return the sum rounded to odd in its last bit where it is inexact: rounding that again is rounding once."""
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & np.isfinite(error) & (error != 0) & ((bits & 1) == 0)
    away = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + away, bits).astype(np.int64).view(np.float64)


def bf16_to_f32(bits: Array) -> Array:
    """Return 16 bits of bf16 as fp32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_integer(value: Array, dtype: type[np.signedinteger] | type[np.unsignedinteger]) -> Array:
    """Return whole numbers as integers: those out of range become the nearest there is, NaN becomes 0."""
    limits = np.iinfo(dtype)
    wide = np.nan_to_num(value.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    return np.clip(wide, limits.min, limits.max).astype(dtype)
