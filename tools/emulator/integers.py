"""Vector instructions on integers and bits (VOP1, VOP2, VOP3), as a table: results, operands, what is computed.

Pseudocode: AMD's RDNA3 and CDNA3 ISA documents, chapter "Instructions", sections VOP1 to VOP3. Names of gfx9 that mean
another thing on gfx10 (`v_add_u32` without carry) are listed with the name they became.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from .operands import DTYPES
from .waves import Array


class Operation(NamedTuple):
    """What an instruction does: types of results and operands, and the function between them."""

    results: tuple[str, ...]
    operands: tuple[str, ...]
    compute: Callable[..., Any]


def operation(results: str, operands: str, compute: Callable[..., Any]) -> Operation:
    """Return an entry of a table, from types separated by blanks."""
    return Operation(tuple(results.split()), tuple(operands.split()), compute)


def to_u32(value: Any) -> Array:
    """Return numbers in 32 bits."""
    return np.asarray(value).astype(np.uint32)


def shift_amount(amount: Array, bits: int = 32) -> Array:
    """Return the bits of an amount that a shift of so many bits looks at."""
    return amount & amount.dtype.type(bits - 1)


def carry(value: Array) -> tuple[Array, Array]:
    """Return the low 32 bits of a sum or difference in 64 bits, and whether it needs more."""
    return to_u32(value & 0xFFFFFFFF), (value < 0) | (value > 0xFFFFFFFF)


def widened(value: Array) -> Array:
    """Return numbers in 64 bits, with sign."""
    return value.astype(np.int64)


def _signed24(value: Array) -> Array:
    return widened((value << np.uint32(8)).view(np.int32) >> 8)


def _low24(value: Array) -> Array:
    return (value & np.uint32(0xFFFFFF)).astype(np.uint64)


def leading(value: Array) -> Array:
    """Count the zeros above the highest bit; -1 where there is none."""
    exponent = np.frexp(value.astype(np.float64))[1]
    return to_u32(np.where(value == 0, -1, 32 - exponent))


def trailing(value: Array) -> Array:
    """Count the zeros below the lowest bit; -1 where there is none."""
    lowest = value & (~value + value.dtype.type(1))
    return to_u32(np.where(value == 0, -1, np.frexp(lowest.astype(np.float64))[1] - 1))


def leading_signs(value: Array) -> Array:
    """Count the bits above the highest that differs from the sign; -1 where none does."""
    other = np.where(value < 0, ~value, value).view(np.uint32)
    return np.where(other == 0, np.uint32(0xFFFFFFFF), leading(other))


def count_bits(value: Array) -> Array:
    """Count the ones of 32- or 64-bit numbers."""
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(*value.shape, value.itemsize)
    return to_u32(np.unpackbits(raw, axis=-1).sum(axis=-1))


def reverse_bits(value: Array) -> Array:
    """Return 32-bit numbers with their bits in the opposite order."""
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(*value.shape, 4)
    bits = np.unpackbits(raw, axis=-1, bitorder="little")[..., ::-1]
    return np.packbits(bits, axis=-1, bitorder="little").view("<u4")[..., 0]


def bit_field_mask(width: Array, offset: Array) -> Array:
    """Return so many ones, from an offset on."""
    return ((np.uint32(1) << shift_amount(width)) - np.uint32(1)) << shift_amount(offset)


def _extract(value: Array, offset: Array, width: Array) -> Array:
    offset, width = shift_amount(offset), shift_amount(width)
    ones = (np.uint32(1) << width) - np.uint32(1)
    return (value.view(np.uint32) >> offset) & ones


def _extract_signed(value: Array, offset: Array, width: Array) -> Array:
    field, width = _extract(value, offset, width), shift_amount(width)
    sign = np.where(width > 0, (np.uint32(1) << width) >> np.uint32(1), np.uint32(0)).astype(np.uint32)
    return (field ^ sign) - sign


def _bytes(selector: Array, high: Array, low: Array) -> Array:
    """Return four bytes, each chosen out of eight by a byte of the selector, or a constant, or a sign."""
    both = high.astype(np.uint64) << np.uint64(32) | low
    result = np.zeros(np.broadcast(selector, both).shape, np.uint32)
    for place in range(4):
        choice = (selector >> np.uint32(8 * place)) & np.uint32(0xFF)
        byte = (both >> (np.uint64(8) * (choice & np.uint32(7)).astype(np.uint64))) & np.uint64(0xFF)
        signs = [((both >> np.uint64(16 * half + 15)) & np.uint64(1)) * np.uint64(0xFF) for half in range(4)]
        chosen = np.select(
            [choice < 8, *(choice == 8 + half for half in range(4)), choice == 12],
            [byte, *signs, np.zeros_like(byte)],
            default=np.uint64(0xFF),
        )
        result |= to_u32(chosen) << np.uint32(8 * place)
    return result


def _align(bits: int) -> Callable[..., Array]:
    """Return the shift of a pair to the right, by bits or by bytes."""

    def compute(high: Array, low: Array, amount: Array) -> Array:
        both = high.astype(np.uint64) << np.uint64(32) | low
        return to_u32(
            (both >> ((amount & np.uint32(32 // bits - 1)).astype(np.uint64) * np.uint64(bits))) & np.uint64(0xFFFFFFFF)
        )

    return compute


def _byte_differences(a: Array, b: Array, c: Array) -> Array:
    total = c.astype(np.uint32) + np.zeros(np.broadcast(a, b).shape, np.uint32)
    for place in range(4):
        x, y = (widened((value >> np.uint32(8 * place)) & np.uint32(0xFF)) for value in (a, b))
        total = total + to_u32(np.abs(x - y))
    return total


def _byte_means(a: Array, b: Array, c: Array) -> Array:
    result = np.zeros(np.broadcast(a, b, c).shape, np.uint32)
    for place in range(4):
        shift = np.uint32(8 * place)
        x, y = ((value >> shift) & np.uint32(0xFF) for value in (a, b))
        result |= ((x + y + ((c >> shift) & np.uint32(1))) >> np.uint32(1)) << shift
    return result


def _saturated(value: Array, kind: str) -> Array:
    limits = np.iinfo(DTYPES[kind])
    return np.clip(value, limits.min, limits.max).astype(DTYPES[kind])


def _pair(low: Array, high: Array) -> Array:
    return (low.astype(np.uint32) & np.uint32(0xFFFF)) | (high.astype(np.uint32) << np.uint32(16))


def _median(a: Array, b: Array, c: Array) -> Array:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


_A: Final = "u32 u32"
_B: Final = "u32 u32 u32"
TABLE: Final[dict[str, Operation]] = {
    "v_mov_b32": operation("u32", "u32", lambda a: a),
    "v_mov_b64": operation("u64", "u64", lambda a: a),
    "v_accvgpr_write_b32": operation("u32", "u32", lambda a: a),
    "v_accvgpr_read_b32": operation("u32", "u32", lambda a: a),
    "v_accvgpr_mov_b32": operation("u32", "u32", lambda a: a),
    "v_not_b32": operation("u32", "u32", lambda a: ~a),
    "v_bfrev_b32": operation("u32", "u32", reverse_bits),
    "v_clz_i32_u32": operation("u32", "u32", leading),
    "v_ctz_i32_b32": operation("u32", "u32", trailing),
    "v_cls_i32": operation("u32", "i32", leading_signs),
    "v_bcnt_u32_b32": operation("u32", _A, lambda a, b: count_bits(a) + b),
    "v_and_b32": operation("u32", _A, lambda a, b: a & b),
    "v_or_b32": operation("u32", _A, lambda a, b: a | b),
    "v_xor_b32": operation("u32", _A, lambda a, b: a ^ b),
    "v_xnor_b32": operation("u32", _A, lambda a, b: ~(a ^ b)),
    "v_and_b16": operation("u16", "u16 u16", lambda a, b: a & b),
    "v_or_b16": operation("u16", "u16 u16", lambda a, b: a | b),
    "v_xor_b16": operation("u16", "u16 u16", lambda a, b: a ^ b),
    "v_and_or_b32": operation("u32", _B, lambda a, b, c: (a & b) | c),
    "v_or3_b32": operation("u32", _B, lambda a, b, c: a | b | c),
    "v_xor3_b32": operation("u32", _B, lambda a, b, c: a ^ b ^ c),
    "v_bfi_b32": operation("u32", _B, lambda a, b, c: (a & b) | (~a & c)),
    "v_bfm_b32": operation("u32", _A, bit_field_mask),
    "v_bfe_u32": operation("u32", _B, _extract),
    "v_bfe_i32": operation("u32", _B, _extract_signed),
    "v_lshlrev_b32": operation("u32", _A, lambda a, b: b << shift_amount(a)),
    "v_lshrrev_b32": operation("u32", _A, lambda a, b: b >> shift_amount(a)),
    "v_ashrrev_i32": operation("i32", "i32 i32", lambda a, b: b >> shift_amount(a)),
    "v_lshlrev_b16": operation("u16", "u16 u16", lambda a, b: b << shift_amount(a, 16)),
    "v_lshrrev_b16": operation("u16", "u16 u16", lambda a, b: b >> shift_amount(a, 16)),
    "v_ashrrev_i16": operation("i16", "i16 i16", lambda a, b: b >> shift_amount(a, 16)),
    "v_lshlrev_b64": operation("u64", "u32 u64", lambda a, b: b << shift_amount(a, 64).astype(np.uint64)),
    "v_lshrrev_b64": operation("u64", "u32 u64", lambda a, b: b >> shift_amount(a, 64).astype(np.uint64)),
    "v_ashrrev_i64": operation("i64", "u32 i64", lambda a, b: b >> shift_amount(a, 64).astype(np.int64)),
    "v_lshl_add_u32": operation("u32", _B, lambda a, b, c: (a << shift_amount(b)) + c),
    "v_lshl_add_u64": operation("u64", "u64 u32 u64", lambda a, b, c: (a << (b & np.uint32(7)).astype(np.uint64)) + c),
    "v_lshl_or_b32": operation("u32", _B, lambda a, b, c: (a << shift_amount(b)) | c),
    "v_add_lshl_u32": operation("u32", _B, lambda a, b, c: (a + b) << shift_amount(c)),
    "v_alignbit_b32": operation("u32", _B, _align(1)),
    "v_alignbyte_b32": operation("u32", _B, _align(8)),
    "v_perm_b32": operation("u32", _B, lambda a, b, c: _bytes(c, a, b)),
    "v_add_nc_u32": operation("u32", _A, lambda a, b: a + b),
    "v_sub_nc_u32": operation("u32", _A, lambda a, b: a - b),
    "v_subrev_nc_u32": operation("u32", _A, lambda a, b: b - a),
    "v_add_nc_i32": operation("i32", "i32 i32", lambda a, b: a + b),
    "v_sub_nc_i32": operation("i32", "i32 i32", lambda a, b: a - b),
    "v_add_nc_u16": operation("u16", "u16 u16", lambda a, b: a + b),
    "v_sub_nc_u16": operation("u16", "u16 u16", lambda a, b: a - b),
    "v_subrev_u16": operation("u16", "u16 u16", lambda a, b: b - a),
    "v_add_nc_i16": operation("i16", "i16 i16", lambda a, b: a + b),
    "v_sub_nc_i16": operation("i16", "i16 i16", lambda a, b: a - b),
    "v_mul_lo_u16": operation("u16", "u16 u16", lambda a, b: a * b),
    "v_mad_u16": operation("u16", "u16 u16 u16", lambda a, b, c: a * b + c),
    "v_mad_i16": operation("i16", "i16 i16 i16", lambda a, b, c: a * b + c),
    "v_add3_u32": operation("u32", _B, lambda a, b, c: a + b + c),
    "v_xad_u32": operation("u32", _B, lambda a, b, c: (a ^ b) + c),
    "v_add_co_u32": operation("u32 mask", _A, lambda a, b: carry(widened(a) + b)),
    "v_sub_co_u32": operation("u32 mask", _A, lambda a, b: carry(widened(a) - b)),
    "v_subrev_co_u32": operation("u32 mask", _A, lambda a, b: carry(widened(b) - a)),
    "v_add_co_ci_u32": operation("u32 mask", "u32 u32 mask", lambda a, b, c: carry(widened(a) + b + c)),
    "v_sub_co_ci_u32": operation("u32 mask", "u32 u32 mask", lambda a, b, c: carry(widened(a) - b - c)),
    "v_subrev_co_ci_u32": operation("u32 mask", "u32 u32 mask", lambda a, b, c: carry(widened(b) - a - c)),
    "v_mul_lo_u32": operation("u32", _A, lambda a, b: a * b),
    "v_mul_hi_u32": operation("u32", _A, lambda a, b: to_u32((a.astype(np.uint64) * b) >> np.uint64(32))),
    "v_mul_hi_i32": operation("i32", "i32 i32", lambda a, b: ((widened(a) * b) >> 32).astype(np.int32)),
    "v_mul_u32_u24": operation("u32", _A, lambda a, b: to_u32((_low24(a) * _low24(b)) & np.uint64(0xFFFFFFFF))),
    "v_mul_hi_u32_u24": operation("u32", _A, lambda a, b: to_u32((_low24(a) * _low24(b)) >> np.uint64(32))),
    "v_mul_i32_i24": operation("u32", _A, lambda a, b: to_u32((_signed24(a) * _signed24(b)) & 0xFFFFFFFF)),
    "v_mul_hi_i32_i24": operation("u32", _A, lambda a, b: to_u32(((_signed24(a) * _signed24(b)) >> 32) & 0xFFFFFFFF)),
    "v_mad_u32_u24": operation("u32", _B, lambda a, b, c: to_u32((_low24(a) * _low24(b) + c) & np.uint64(0xFFFFFFFF))),
    "v_mad_i32_i24": operation("u32", _B, lambda a, b, c: to_u32((_signed24(a) * _signed24(b) + c) & 0xFFFFFFFF)),
    "v_mad_u64_u32": operation("u64 mask", "u32 u32 u64", lambda a, b, c: _multiply_add(a.astype(np.uint64) * b, c)),
    "v_mad_i64_i32": operation("i64 mask", "i32 i32 i64", lambda a, b, c: _multiply_add_signed(widened(a) * b, c)),
    "v_mad_u32_u16": operation("u32", "u16 u16 u32", lambda a, b, c: a.astype(np.uint32) * b + c),
    "v_max_i32": operation("i32", "i32 i32", np.maximum),
    "v_min_i32": operation("i32", "i32 i32", np.minimum),
    "v_max_u32": operation("u32", _A, np.maximum),
    "v_min_u32": operation("u32", _A, np.minimum),
    "v_max_i16": operation("i16", "i16 i16", np.maximum),
    "v_min_i16": operation("i16", "i16 i16", np.minimum),
    "v_max_u16": operation("u16", "u16 u16", np.maximum),
    "v_min_u16": operation("u16", "u16 u16", np.minimum),
    "v_min3_u32": operation("u32", _B, lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_max3_u32": operation("u32", _B, lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_min3_i32": operation("i32", "i32 i32 i32", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_max3_i32": operation("i32", "i32 i32 i32", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_maxmin_i32": operation("i32", "i32 i32 i32", lambda a, b, c: np.minimum(np.maximum(a, b), c)),
    "v_minmax_i32": operation("i32", "i32 i32 i32", lambda a, b, c: np.maximum(np.minimum(a, b), c)),
    "v_maxmin_u32": operation("u32", _B, lambda a, b, c: np.minimum(np.maximum(a, b), c)),
    "v_minmax_u32": operation("u32", _B, lambda a, b, c: np.maximum(np.minimum(a, b), c)),
    "v_med3_i32": operation("i32", "i32 i32 i32", _median),
    "v_med3_u32": operation("u32", _B, _median),
    "v_sad_u32": operation("u32", _B, lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c),
    "v_sad_u8": operation("u32", _B, _byte_differences),
    "v_lerp_u8": operation("u32", _B, _byte_means),
    "v_cvt_pk_u16_u32": operation("u32", _A, lambda a, b: _pair(_saturated(a, "u16"), _saturated(b, "u16"))),
    "v_cvt_pk_i16_i32": operation("u32", "i32 i32", lambda a, b: _pair(_saturated(a, "i16"), _saturated(b, "i16"))),
    "v_cndmask_b32": operation("u32", "u32 u32 mask", lambda a, b, c: np.where(c, b, a)),
    "v_cndmask_b16": operation("u16", "u16 u16 mask", lambda a, b, c: np.where(c, b, a)),
}  # fmt: skip


def _multiply_add(product: Array, addend: Array) -> tuple[Array, Array]:
    total = product + addend
    return total, total < product


def _multiply_add_signed(product: Array, addend: Array) -> tuple[Array, Array]:
    total = product + addend
    # The carry is the sign of the sum that has one bit more.
    return total, np.where((product < 0) == (addend < 0), product < 0, total < 0)


# Where the clamp bit makes integers saturate: what is computed without wrapping around.
SATURATING: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "v_add_nc_u32": lambda a, b: _saturated(widened(a) + b, "u32"),
    "v_sub_nc_u32": lambda a, b: _saturated(widened(a) - b, "u32"),
    "v_add_nc_i32": lambda a, b: _saturated(widened(a) + b, "i32"),
    "v_sub_nc_i32": lambda a, b: _saturated(widened(a) - b, "i32"),
    "v_add_nc_u16": lambda a, b: _saturated(widened(a) + b, "u16"),
    "v_sub_nc_u16": lambda a, b: _saturated(widened(a) - b, "u16"),
    "v_add_nc_i16": lambda a, b: _saturated(widened(a) + b, "i16"),
    "v_sub_nc_i16": lambda a, b: _saturated(widened(a) - b, "i16"),
}

# Names of other generations.
ALIASES: Final = {
    "v_add_u32": "v_add_nc_u32", "v_sub_u32": "v_sub_nc_u32", "v_subrev_u32": "v_subrev_nc_u32",
    "v_add_i32": "v_add_nc_i32", "v_sub_i32": "v_sub_nc_i32",
    "v_add_u16": "v_add_nc_u16", "v_sub_u16": "v_sub_nc_u16",
    "v_addc_co_u32": "v_add_co_ci_u32", "v_subb_co_u32": "v_sub_co_ci_u32", "v_subbrev_co_u32": "v_subrev_co_ci_u32",
    "v_mad_co_u64_u32": "v_mad_u64_u32", "v_mad_co_i64_i32": "v_mad_i64_i32",
    "v_ffbh_u32": "v_clz_i32_u32", "v_ffbl_b32": "v_ctz_i32_b32", "v_ffbh_i32": "v_cls_i32",
}  # fmt: skip
