"""Vector instructions on floating point, conversions and comparisons (VOP1, VOP2, VOP3, VOPC), as tables.

Pseudocode: AMD's RDNA3 and CDNA3 ISA documents, chapter "Instructions". Reciprocals, roots and logarithms are computed
to the last bit here; the hardware promises one unit in the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .integers import Operation, operation
from .rounding import f16_towards_zero, f32_to_bf16, fma_f16, fma_f32, fma_f64, sum_to_f32, to_integer
from .waves import Array

_TYPES: Final[dict[str, Any]] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_FMA: Final = {"f16": fma_f16, "f32": fma_f32, "f64": fma_f64}
_EXPONENTS: Final = {"f32": (8, 23, 127), "f64": (11, 52, 1023)}


def _rounded(value: Any, kind: str) -> Array:
    result: Array = np.asarray(value).astype(_TYPES[kind])
    return result


def _minimum(a: Array, b: Array) -> Array:
    """Return the smaller; a number where the other is NaN, -0 of two zeros."""
    return np.where(a == b, np.where(np.signbit(a), a, b), np.fmin(a, b))  # which zero fmin returns, the host decides


def _maximum(a: Array, b: Array) -> Array:
    """Return the larger; a number where the other is NaN, +0 of two zeros."""
    return np.where(a == b, np.where(np.signbit(a), b, a), np.fmax(a, b))


def _fraction(value: Array) -> Array:
    below_one = np.nextafter(value.dtype.type(1), value.dtype.type(0))
    return np.fmin(value - np.floor(value), below_one)


def _bits_of(value: Array, kind: str) -> tuple[Array, Array]:
    """Return the bits, and the biased exponent."""
    exponent_bits, mantissa_bits, _ = _EXPONENTS[kind]
    bits = value.view(np.uint32 if kind == "f32" else np.uint64).astype(np.uint64)
    return bits, ((bits >> np.uint64(mantissa_bits)) & np.uint64((1 << exponent_bits) - 1)).astype(np.int64)


def _division_scale(kind: str) -> Callable[..., tuple[Array, Array]]:
    """Return V_DIV_SCALE: an operand of a division, moved where the steps of Newton's method lose nothing."""
    bias = _EXPONENTS[kind][2]
    far = {"f32": 96, "f64": 768}[kind]
    up = {"f32": 64, "f64": 128}[kind]

    def compute(which: Array, denominator: Array, numerator: Array) -> tuple[Array, Array]:
        which, denominator, numerator = np.broadcast_arrays(which, denominator, numerator)
        (_, below), (_, above) = _bits_of(denominator, kind), _bits_of(numerator, kind)
        is_denominator = which.view(f"u{which.itemsize}") == denominator.view(f"u{which.itemsize}")
        is_numerator = which.view(f"u{which.itemsize}") == numerator.view(f"u{which.itemsize}")
        denormal = (below == 0) & (denominator != 0)
        reciprocal = 1 / denominator.astype(np.float64)
        quotient = numerator.astype(np.float64) / denominator.astype(np.float64)
        smallest = np.finfo(_TYPES[kind]).tiny
        reciprocal_denormal = (np.abs(reciprocal) < smallest) & (reciprocal != 0)
        quotient_denormal = (np.abs(quotient) < smallest) & (numerator != 0)
        if kind == "f64":
            reciprocal_denormal = below - bias >= 1022
            quotient_denormal = above - below <= -1022
        conditions = [
            (denominator == 0) | (numerator == 0),
            above - below >= far,
            denormal,
            reciprocal_denormal & quotient_denormal,
            reciprocal_denormal,
            quotient_denormal,
            above <= {"f32": 23, "f64": 53}[kind],
        ]
        scaled_up, scaled_down = _rounded(np.ldexp(which, up), kind), _rounded(np.ldexp(which, -up), kind)
        values = [
            np.full(which.shape, np.nan, which.dtype),
            np.where(is_denominator, scaled_up, which),
            scaled_up,
            np.where(is_denominator, scaled_down, which),  # printed upwards, which overflows; see V_DIV_FMAS
            scaled_down,
            np.where(is_numerator, scaled_up, which),
            scaled_up,
        ]
        flags = [False, True, False, True, False, True, False]
        result = np.select(conditions, values, default=which)
        flag = np.select(conditions, [np.full(which.shape, each) for each in flags], default=False)
        return result.astype(which.dtype), flag

    return compute


def _division_steps(kind: str) -> Callable[..., Array]:
    """Return V_DIV_FMAS: a multiply-add whose result is scaled back where V_DIV_SCALE has said so.

    The documents print one factor, 2**32. Division comes out right, and cards are reported to agree, with 2**64 upwards
    or downwards (fp64: 2**128) by the size of the addend, and one rounding.
    """
    up = {"f32": 64, "f64": 128}[kind]

    def compute(a: Array, b: Array, c: Array, scale: Array) -> Array:
        by = np.where(scale, np.where(np.abs(c) >= 2, up, -up), 0)
        if kind == "f32":
            product = np.ldexp(a.astype(np.float64) * b, by)
            return sum_to_f32(product, np.ldexp(c.astype(np.float64), by))
        return fma_f64(a, b, c, by)

    return compute


def _division_fixup(kind: str) -> Callable[..., Array]:
    """Return V_DIV_FIXUP: the quotient, or what a division by or of something special gives."""

    def compute(quotient: Array, denominator: Array, numerator: Array) -> Array:
        quotient, denominator, numerator = np.broadcast_arrays(quotient, denominator, numerator)
        sign = np.where(np.signbit(denominator) ^ np.signbit(numerator), -1.0, 1.0)
        conditions = [
            np.isnan(numerator) | np.isnan(denominator),
            (numerator == 0) & (denominator == 0) | np.isinf(numerator) & np.isinf(denominator),
            (denominator == 0) | np.isinf(numerator),
            np.isinf(denominator) | (numerator == 0),
        ]
        values = [numerator + denominator, np.full(sign.shape, np.nan), sign * np.inf, sign * 0.0]
        if kind != "f16":
            (_, below), (_, above) = _bits_of(denominator, kind), _bits_of(numerator, kind)
            # Far below what can be represented, whatever the steps made of it.
            conditions.append(above - below < -(_EXPONENTS[kind][2] + _EXPONENTS[kind][1]))
            values.append(sign * 0.0)
        # A quotient that is no number, of numbers, has overflowed on the way.
        ordinary = np.where(np.isnan(quotient), sign * np.inf, np.copysign(quotient, sign.astype(quotient.dtype)))
        return _rounded(np.select(conditions, values, default=ordinary), kind)

    return compute


def _class(value: Array, wanted: Array) -> Array:
    """Return whether a number is of one of the wanted kinds (V_CMP_CLASS)."""
    negative, tiny = np.signbit(value), np.finfo(value.dtype).tiny
    quiet = {2: 1 << 9, 4: 1 << 22, 8: 1 << 51}[value.itemsize]
    silent = (value.view(f"u{value.itemsize}") & value.view(f"u{value.itemsize}").dtype.type(quiet)) != 0
    normal = np.isfinite(value) & (np.abs(value) >= tiny)
    denormal = np.isfinite(value) & (np.abs(value) < tiny) & (value != 0)
    kinds = (
        np.isnan(value) & ~silent, np.isnan(value) & silent, np.isneginf(value), negative & normal, negative & denormal,
        negative & (value == 0), ~negative & (value == 0), ~negative & denormal, ~negative & normal, np.isposinf(value),
    )  # fmt: skip
    found = np.zeros(np.broadcast(value, wanted).shape, bool)
    for bit, kind in enumerate(kinds):
        found |= kind & ((wanted >> np.uint32(bit)) & np.uint32(1)).astype(bool)
    return found


def _arithmetic(kind: str) -> dict[str, Operation]:
    two, three, fma = f"{kind} {kind}", f"{kind} {kind} {kind}", _FMA[kind]
    return {
        f"v_add_{kind}": operation(kind, two, lambda a, b: a + b),
        f"v_sub_{kind}": operation(kind, two, lambda a, b: a - b),
        f"v_subrev_{kind}": operation(kind, two, lambda a, b: b - a),
        f"v_mul_{kind}": operation(kind, two, lambda a, b: a * b),
        f"v_min_{kind}": operation(kind, two, _minimum),
        f"v_max_{kind}": operation(kind, two, _maximum),
        f"v_fma_{kind}": operation(kind, three, fma),
        f"v_fmaak_{kind}": operation(kind, three, fma),
        f"v_fmamk_{kind}": operation(kind, three, fma),
        f"v_fmac_{kind}": operation(kind, f"{two} result", fma),
        f"v_min3_{kind}": operation(kind, three, lambda a, b, c: _minimum(_minimum(a, b), c)),
        f"v_max3_{kind}": operation(kind, three, lambda a, b, c: _maximum(_maximum(a, b), c)),
        f"v_minmax_{kind}": operation(kind, three, lambda a, b, c: _maximum(_minimum(a, b), c)),
        f"v_maxmin_{kind}": operation(kind, three, lambda a, b, c: _minimum(_maximum(a, b), c)),
        f"v_med3_{kind}": operation(kind, three, lambda a, b, c: _maximum(_minimum(a, b), _minimum(_maximum(a, b), c))),
        f"v_rcp_{kind}": operation(kind, kind, lambda a: 1 / a),
        f"v_sqrt_{kind}": operation(kind, kind, np.sqrt),
        f"v_rsq_{kind}": operation(kind, kind, lambda a: _rounded(1 / np.sqrt(a.astype(np.float64)), kind)),
        f"v_exp_{kind}": operation(kind, kind, lambda a: _rounded(np.exp2(a.astype(np.float64)), kind)),
        f"v_log_{kind}": operation(kind, kind, lambda a: _rounded(np.log2(a.astype(np.float64)), kind)),
        f"v_floor_{kind}": operation(kind, kind, np.floor),
        f"v_ceil_{kind}": operation(kind, kind, np.ceil),
        f"v_trunc_{kind}": operation(kind, kind, np.trunc),
        f"v_rndne_{kind}": operation(kind, kind, np.rint),
        f"v_fract_{kind}": operation(kind, kind, _fraction),
        f"v_ldexp_{kind}": operation(
            kind, f"{kind} {'i16' if kind == 'f16' else 'i32'}", lambda a, b: _rounded(np.ldexp(a, b), kind)
        ),
        f"v_frexp_mant_{kind}": operation(kind, kind, lambda a: np.where(np.isfinite(a), np.frexp(a)[0], a)),
        f"v_frexp_exp_i32_{kind}": operation(
            "i32", kind, lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(np.int32)
        ),
        f"v_div_fixup_{kind}": operation(kind, three, _division_fixup(kind)),
    }


def _doubles() -> dict[str, Operation]:
    """Return what there is for fp64: no subtraction, no exponential, of three operands the multiply-add alone."""
    missing = ["sub", "subrev", "exp", "log", "fmaak", "fmamk", "min3", "max3", "med3", "minmax", "maxmin"]
    return {name: each for name, each in _arithmetic("f64").items() if name[2:-4] not in missing}


def _divisions(kind: str) -> dict[str, Operation]:
    three = f"{kind} {kind} {kind}"
    return {
        f"v_div_scale_{kind}": operation(f"{kind} mask", three, _division_scale(kind)),
        f"v_div_fmas_{kind}": operation(kind, f"{three} vcc", _division_steps(kind)),
    }


def _conversions() -> dict[str, Operation]:
    plain = {
        "f32_i32": "i32", "f32_u32": "u32", "f64_i32": "i32", "f64_u32": "u32", "f16_u16": "u16", "f16_i16": "i16",
        "f32_f16": "f16", "f16_f32": "f32", "f32_f64": "f64", "f64_f32": "f32",
    }  # fmt: skip
    table = {
        f"v_cvt_{name}": operation(name[:3], source, lambda a, kind=name[:3]: a.astype(_TYPES[kind]))
        for name, source in plain.items()
    }
    integers = {"i32": np.int32, "u32": np.uint32, "i16": np.int16, "u16": np.uint16}
    for name in ("i32_f32", "u32_f32", "i32_f64", "u32_f64", "i16_f16", "u16_f16"):
        dtype = integers[name[:3]]
        table[f"v_cvt_{name}"] = operation(name[:3], name[4:], lambda a, dtype=dtype: to_integer(np.trunc(a), dtype))
    for place in range(4):
        table[f"v_cvt_f32_ubyte{place}"] = operation(
            "f32", "u32", lambda a, by=8 * place: ((a >> np.uint32(by)) & np.uint32(0xFF)).astype(np.float32)
        )
    nearest = operation("i32", "f32", lambda a: to_integer(np.floor(a.astype(np.float64) + 0.5), np.int32))
    floor = operation("i32", "f32", lambda a: to_integer(np.floor(a), np.int32))
    table |= {"v_cvt_nearest_i32_f32": nearest, "v_cvt_rpi_i32_f32": nearest}
    table |= {"v_cvt_floor_i32_f32": floor, "v_cvt_flr_i32_f32": floor}
    table["v_cvt_pkrtz_f16_f32"] = operation(
        "u32", "f32 f32", lambda a, b: pack(f16_towards_zero(a), f16_towards_zero(b))
    )
    table["v_cvt_pk_bf16_f32"] = operation("u32", "f32 f32", lambda a, b: pack(f32_to_bf16(a), f32_to_bf16(b)))
    table["v_pack_b32_f16"] = operation("u32", "f16 f16", pack)
    return table


def pack(low: Array, high: Array) -> Array:
    """Return two halves of 16 bits as one register."""
    low, high = (half.view(np.uint16).astype(np.uint32) for half in (low, high))
    return low | (high << np.uint32(16))


TABLE: Final[dict[str, Operation]] = {
    **_arithmetic("f16"), **_arithmetic("f32"), **_doubles(), **_divisions("f32"), **_divisions("f64"),
    **_conversions(),
    # Multiply-adds that round the product, of generations before gfx90a.
    **{f"v_{name}_f32": operation("f32", "f32 f32 f32", lambda a, b, c: a * b + c)
       for name in ("mad", "madmk", "madak")},
    "v_mac_f32": operation("f32", "f32 f32 result", lambda a, b, c: a * b + c),
    # The multiplication of legacy shaders, where 0 times anything is 0.
    "v_mul_legacy_f32": operation("f32", "f32 f32", lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b)),
    "v_sin_f32": operation("f32", "f32", lambda a: _rounded(np.sin(2 * np.pi * a.astype(np.float64)), "f32")),
    "v_cos_f32": operation("f32", "f32", lambda a: _rounded(np.cos(2 * np.pi * a.astype(np.float64)), "f32")),
}  # fmt: skip

ALIASES: Final = {
    "v_rcp_iflag_f32": "v_rcp_f32",
    "v_cvt_pk_rtz_f16_f32": "v_cvt_pkrtz_f16_f32", "v_mul_dx9_zero_f32": "v_mul_legacy_f32",
    "v_frexp_exp_i16_f16": "v_frexp_exp_i32_f16",
    **{f"v_{name}_num_{kind}": f"v_{name}_{kind}"
       for name in ("min", "max", "med3", "minmax", "maxmin", "min3", "max3") for kind in ("f16", "f32", "f64")},
}  # fmt: skip

_Compare = Callable[[Array, Array], Array]
_ORDERED: Final[dict[str, _Compare]] = {
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}  # fmt: skip


def _comparisons() -> dict[str, Operation]:
    table: dict[str, Operation] = {}
    for kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
        both = f"{kind} {kind}"
        for name, compare in {**_ORDERED, "ne": lambda a, b: a != b}.items():
            table[f"v_cmp_{name}_{kind}"] = operation("mask", both, compare)
    for kind in ("f16", "f32", "f64"):
        both = f"{kind} {kind}"
        for name, compare in _ORDERED.items():
            table[f"v_cmp_{name}_{kind}"] = operation("mask", both, compare)
            opposite = "neq" if name == "eq" else f"n{name}"
            table[f"v_cmp_{opposite}_{kind}"] = operation("mask", both, lambda a, b, compare=compare: ~compare(a, b))
        table[f"v_cmp_lg_{kind}"] = operation("mask", both, lambda a, b: (a < b) | (a > b))
        table[f"v_cmp_nlg_{kind}"] = operation("mask", both, lambda a, b: ~((a < b) | (a > b)))
        table[f"v_cmp_o_{kind}"] = operation("mask", both, lambda a, b: ~(np.isnan(a) | np.isnan(b)))
        table[f"v_cmp_u_{kind}"] = operation("mask", both, lambda a, b: np.isnan(a) | np.isnan(b))
        table[f"v_cmp_class_{kind}"] = operation("mask", f"{kind} u32", _class)
    return table


COMPARISONS: Final = _comparisons()
