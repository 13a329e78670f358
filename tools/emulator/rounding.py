"""Floating point as the hardware rounds it: fused multiply-add, conversions to half precision and to integers.

The modes are those that every kernel here is compiled for: round to nearest even, denormals kept. A kernel that asks
for others is refused at its launch.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

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
    result: Array = total.astype(np.float32)
    return result


def fma_f16(a: Array, b: Array, c: Array) -> Array:
    """Return a b + c rounded once to fp16."""
    product = a.astype(np.float64) * b
    wide = np.broadcast_to(c, product.shape).astype(np.float64)
    result: Array = _to_odd(product, wide, product + wide).astype(np.float16)
    return result


def fma_f64(a: Array, b: Array, c: Array, power: Array | int = 0) -> Array:
    """Return (a b + c) 2**power rounded once to fp64, number by number: it is rare."""
    a, b, c, power = np.broadcast_arrays(a, b, c, power)
    result = np.ldexp(a * b + c, power)
    for index in zip(*np.nonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)), strict=True):
        exact = Fraction(float(a[index])) * Fraction(float(b[index])) + Fraction(float(c[index]))
        if exact:
            try:
                result[index] = float(exact * Fraction(2) ** int(power[index]))
            except OverflowError:
                result[index] = np.inf if exact > 0 else -np.inf
    return result


def _to_odd(product: Array, addend: Array, total: Array) -> Array:
    """Return the sum rounded to odd in its last bit where it is inexact: rounding that again is rounding once."""
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & np.isfinite(error) & (error != 0) & ((bits & 1) == 0)
    away = np.where((error > 0) == (total > 0), 1, -1)
    moved: Array = np.where(inexact, bits + away, bits).astype(np.int64).view(np.float64)
    return moved


def f16_towards_zero(value: Array) -> Array:
    """Return fp32 rounded to fp16 towards zero; what is too large becomes the largest number."""
    nearest = value.astype(np.float16)
    too_far = np.abs(nearest.astype(np.float32)) > np.abs(value)
    bits = nearest.view(np.uint16)
    result: Array = np.where(too_far, bits - np.uint16(1), bits).astype(np.uint16).view(np.float16)
    return result


def bf16_to_f32(bits: Array) -> Array:
    """Return 16 bits of bf16 as fp32."""
    result: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return result


def f32_to_bf16(value: Array) -> Array:
    """Return fp32 rounded to nearest even as 16 bits of bf16."""
    bits = value.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = np.where(np.isnan(value), bits | np.uint32(1 << 22), rounded)
    result: Array = (rounded >> np.uint32(16)).astype(np.uint16)
    return result


def to_integer(value: Array, dtype: type[np.signedinteger[Any]] | type[np.unsignedinteger[Any]]) -> Array:
    """Return whole numbers as integers: those out of range become the nearest there is, NaN becomes 0."""
    limits = np.iinfo(dtype)
    wide = np.nan_to_num(value.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    result: Array = np.clip(wide, limits.min, limits.max).astype(dtype)
    return result
