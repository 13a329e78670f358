"""Vector instructions on floating point, conversions and comparisons (VOP1, VOP2, VOP3, VOPC), as tables.

Pseudocode: AMD's RDNA3 and CDNA3 ISA documents, chapter "Instructions". Reciprocals, roots and logarithms are computed
to the last bit here; the hardware promises one unit in the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from .integers import Operation, operation
from .rounding import fma_f32, sum_to_f32, to_integer
from .waves import Array

# Of V_DIV_SCALE: exponents further apart than this, and by which power of two operands are moved.
_FAR: Final = 96
_BY: Final = 64


def _by_f64(function: Callable[[Array], Array]) -> Operation:
    """Return an instruction that computes a function in fp64 and rounds to fp32."""
    return operation("f32", "f32", lambda a: np.asarray(function(a.astype(np.float64))).astype(np.float32))


def _minimum(a: Array, b: Array) -> Array:
    """Return the smaller; a number where the other is NaN, -0 of two zeros."""
    return np.where(a == b, np.where(np.signbit(a), a, b), np.fmin(a, b))  # which zero fmin returns, the host decides


def _maximum(a: Array, b: Array) -> Array:
    """Return the larger; a number where the other is NaN, +0 of two zeros."""
    return np.where(a == b, np.where(np.signbit(a), b, a), np.fmax(a, b))


def _exponent(value: Array) -> Array:
    """Return the biased exponents."""
    return ((value.view(np.uint32) >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int64)


def _division_scale(which: Array, denominator: Array, numerator: Array) -> tuple[Array, Array]:
    """Compute V_DIV_SCALE: an operand of a division, moved where the steps of Newton's method lose nothing."""
    which, denominator, numerator = np.broadcast_arrays(which, denominator, numerator)
    below, above = _exponent(denominator), _exponent(numerator)
    is_denominator, is_numerator = (which.view("u4") == each.view("u4") for each in (denominator, numerator))
    smallest = np.finfo(np.float32).tiny
    reciprocal = np.abs(1 / denominator.astype(np.float64))
    quotient = np.abs(numerator.astype(np.float64) / denominator.astype(np.float64))
    reciprocal_denormal = (reciprocal < smallest) & (reciprocal != 0)
    quotient_denormal = (quotient < smallest) & (numerator != 0)
    up, down = (np.ldexp(which, by).astype(np.float32) for by in (_BY, -_BY))
    rows = (
        ((denominator == 0) | (numerator == 0), np.full(which.shape, np.nan, which.dtype), False),
        (above - below >= _FAR, np.where(is_denominator, up, which), True),
        ((below == 0) & (denominator != 0), up, False),
        # Printed upwards, which overflows; see V_DIV_FMAS.
        (reciprocal_denormal & quotient_denormal, np.where(is_denominator, down, which), True),
        (reciprocal_denormal, down, False),
        (quotient_denormal, np.where(is_numerator, up, which), True),
        (above <= 23, up, False),
    )
    conditions = [row[0] for row in rows]
    result = np.select(conditions, [row[1] for row in rows], default=which)
    return result.astype(which.dtype), np.select(conditions, [np.full(which.shape, row[2]) for row in rows], False)


def _division_steps(a: Array, b: Array, c: Array, scale: Array) -> Array:
    """Compute V_DIV_FMAS: a multiply-add whose result is scaled back where V_DIV_SCALE has said so.

    The documents print one factor, 2**32. Division comes out right, and cards are reported to agree, with 2**64 upwards
    or downwards by the size of the addend, and one rounding.
    """
    by = np.where(scale, np.where(np.abs(c) >= 2, _BY, -_BY), 0)
    return sum_to_f32(np.ldexp(a.astype(np.float64) * b, by), np.ldexp(c.astype(np.float64), by))


def _division_fixup(quotient: Array, denominator: Array, numerator: Array) -> Array:
    """Compute V_DIV_FIXUP: the quotient, or what a division by or of something special gives."""
    quotient, denominator, numerator = np.broadcast_arrays(quotient, denominator, numerator)
    sign = np.where(np.signbit(denominator) ^ np.signbit(numerator), -1.0, 1.0)
    rows = (
        (np.isnan(numerator) | np.isnan(denominator), numerator + denominator),
        ((numerator == 0) & (denominator == 0) | np.isinf(numerator) & np.isinf(denominator), np.nan * sign),
        ((denominator == 0) | np.isinf(numerator), sign * np.inf),
        (np.isinf(denominator) | (numerator == 0), sign * 0.0),
        # Far below what can be represented, whatever the steps made of it.
        (_exponent(numerator) - _exponent(denominator) < -(127 + 23), sign * 0.0),
        # A quotient that is no number, of numbers, has overflowed on the way.
        (np.isnan(quotient), sign * np.inf),
    )
    ordinary = np.copysign(quotient, sign.astype(np.float32))
    return np.select([row[0] for row in rows], [row[1] for row in rows], default=ordinary).astype(np.float32)


def _class(value: Array, wanted: Array) -> Array:
    """Return whether a number is of one of the wanted kinds (V_CMP_CLASS)."""
    negative, tiny = np.signbit(value), np.finfo(value.dtype).tiny
    quiet = (value.view(np.uint32) & np.uint32(1 << 22)) != 0
    normal = np.isfinite(value) & (np.abs(value) >= tiny)
    denormal = np.isfinite(value) & (np.abs(value) < tiny) & (value != 0)
    kinds = (
        np.isnan(value) & ~quiet, np.isnan(value) & quiet, np.isneginf(value), negative & normal, negative & denormal,
        negative & (value == 0), ~negative & (value == 0), ~negative & denormal, ~negative & normal, np.isposinf(value),
    )  # fmt: skip
    chosen = [kind & ((wanted >> np.uint32(bit)) & np.uint32(1)).astype(bool) for bit, kind in enumerate(kinds)]
    return np.logical_or.reduce(chosen)


def _pack(low: Array, high: Array) -> Array:
    low, high = (half.view(np.uint16).astype(np.uint32) for half in (low, high))
    return low | (high << np.uint32(16))


_TWO: Final = "f32 f32"
_THREE: Final = "f32 f32 f32"
TABLE: Final[dict[str, Operation]] = {
    "v_add_f32": operation("f32", _TWO, lambda a, b: a + b),
    "v_sub_f32": operation("f32", _TWO, lambda a, b: a - b),
    "v_subrev_f32": operation("f32", _TWO, lambda a, b: b - a),
    "v_mul_f32": operation("f32", _TWO, lambda a, b: a * b),
    "v_min_f32": operation("f32", _TWO, _minimum),
    "v_max_f32": operation("f32", _TWO, _maximum),
    **{f"v_{name}_f32": operation("f32", _THREE, fma_f32) for name in ("fma", "fmaak", "fmamk")},
    "v_fmac_f32": operation("f32", f"{_TWO} result", fma_f32),
    # Multiply-adds that round the product, of generations before gfx90a.
    **{f"v_{name}_f32": operation("f32", _THREE, lambda a, b, c: a * b + c) for name in ("mad", "madmk", "madak")},
    "v_mac_f32": operation("f32", f"{_TWO} result", lambda a, b, c: a * b + c),
    "v_min3_f32": operation("f32", _THREE, lambda a, b, c: _minimum(_minimum(a, b), c)),
    "v_max3_f32": operation("f32", _THREE, lambda a, b, c: _maximum(_maximum(a, b), c)),
    "v_minmax_f32": operation("f32", _THREE, lambda a, b, c: _maximum(_minimum(a, b), c)),
    "v_maxmin_f32": operation("f32", _THREE, lambda a, b, c: _minimum(_maximum(a, b), c)),
    "v_med3_f32": operation("f32", _THREE, lambda a, b, c: _maximum(_minimum(a, b), _minimum(_maximum(a, b), c))),
    "v_rcp_f32": operation("f32", "f32", lambda a: 1 / a),
    "v_sqrt_f32": operation("f32", "f32", np.sqrt),
    "v_rsq_f32": _by_f64(lambda a: 1 / np.sqrt(a)),
    "v_exp_f32": _by_f64(np.exp2),
    "v_log_f32": _by_f64(np.log2),
    "v_floor_f32": operation("f32", "f32", np.floor),
    "v_ceil_f32": operation("f32", "f32", np.ceil),
    "v_trunc_f32": operation("f32", "f32", np.trunc),
    "v_rndne_f32": operation("f32", "f32", np.rint),
    "v_ldexp_f32": operation("f32", "f32 i32", lambda a, b: np.ldexp(a, b).astype(np.float32)),
    "v_div_scale_f32": operation("f32 mask", _THREE, _division_scale),
    "v_div_fmas_f32": operation("f32", f"{_THREE} vcc", _division_steps),
    "v_div_fixup_f32": operation("f32", _THREE, _division_fixup),
    "v_cvt_f32_i32": operation("f32", "i32", lambda a: a.astype(np.float32)),
    "v_cvt_f32_u32": operation("f32", "u32", lambda a: a.astype(np.float32)),
    "v_cvt_f32_f16": operation("f32", "f16", lambda a: a.astype(np.float32)),
    "v_cvt_f16_f32": operation("f16", "f32", lambda a: a.astype(np.float16)),
    "v_cvt_i32_f32": operation("i32", "f32", lambda a: to_integer(np.trunc(a), np.int32)),
    "v_cvt_u32_f32": operation("u32", "f32", lambda a: to_integer(np.trunc(a), np.uint32)),
    "v_pack_b32_f16": operation("u32", "f16 f16", _pack),
}  # fmt: skip

ALIASES: Final = {
    "v_rcp_iflag_f32": "v_rcp_f32",
    **{f"v_{name}_num_f32": f"v_{name}_f32" for name in ("min", "max", "med3", "minmax", "maxmin", "min3", "max3")},
}

_Compare = Callable[[Array, Array], Array]
_ORDERED: Final[dict[str, _Compare]] = {
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}  # fmt: skip


def _comparisons() -> dict[str, Operation]:
    table: dict[str, Operation] = {"v_cmp_class_f32": operation("mask", "f32 u32", _class)}
    for kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
        for name, compare in {**_ORDERED, "ne": lambda a, b: a != b}.items():
            table[f"v_cmp_{name}_{kind}"] = operation("mask", f"{kind} {kind}", compare)
    for kind in ("f16", "f32"):
        ordered = {**_ORDERED, "lg": lambda a, b: (a < b) | (a > b), "o": lambda a, b: ~(np.isnan(a) | np.isnan(b))}
        for name, compare in ordered.items():
            opposite = {"eq": "neq", "o": "u"}.get(name, f"n{name}")
            table[f"v_cmp_{name}_{kind}"] = operation("mask", f"{kind} {kind}", compare)
            table[f"v_cmp_{opposite}_{kind}"] = operation(
                "mask", f"{kind} {kind}", lambda a, b, compare=compare: ~compare(a, b)
            )
    return table


COMPARISONS: Final = _comparisons()
