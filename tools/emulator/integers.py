"""Vector instructions on integers and bits (VOP1, VOP2, VOP3), as a table: results, operands, what is computed.

Pseudocode: AMD's RDNA3 and CDNA3 ISA documents, chapter "Instructions", sections VOP1 to VOP3. Names of gfx9 that mean
another thing on gfx10 (`v_add_u32` without carry) are listed with the name they became. The tables have what compilers
print for our kernels and for the functions that tests compare with a CPU; what else there is ends a run by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

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


def count_bits(value: Array) -> Array:
    """Count the ones of 32- or 64-bit numbers."""
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(*value.shape, value.itemsize)
    return to_u32(np.unpackbits(raw, axis=-1).sum(axis=-1))


def reverse_bits(value: Array) -> Array:
    """Return 32-bit numbers with their bits in the opposite order."""
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(*value.shape, 4)
    bits = np.unpackbits(raw, axis=-1, bitorder="little")[..., ::-1]
    return np.packbits(bits, axis=-1, bitorder="little").view("<u4")[..., 0]


def _extract(value: Array, offset: Array, width: Array) -> Array:
    ones = (np.uint32(1) << shift_amount(width)) - np.uint32(1)
    return (value.view(np.uint32) >> shift_amount(offset)) & ones


def _extract_signed(value: Array, offset: Array, width: Array) -> Array:
    field, width = _extract(value, offset, width), shift_amount(width)
    sign = np.where(width > 0, (np.uint32(1) << width) >> np.uint32(1), np.uint32(0)).astype(np.uint32)
    return (field ^ sign) - sign


def _bytes(high: Array, low: Array, selector: Array) -> Array:
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


def _align(high: Array, low: Array, amount: Array) -> Array:
    both = high.astype(np.uint64) << np.uint64(32) | low
    return to_u32((both >> shift_amount(amount).astype(np.uint64)) & np.uint64(0xFFFFFFFF))


def _multiply_add(product: Array, addend: Array) -> tuple[Array, Array]:
    total = product + addend
    return total, total < product


def _multiply_add_signed(product: Array, addend: Array) -> tuple[Array, Array]:
    total = product + addend
    # The carry is the sign of the sum that has one bit more.
    return total, np.where((product < 0) == (addend < 0), product < 0, total < 0)


_A: Final = "u32 u32"
_B: Final = "u32 u32 u32"
_I: Final = "i32 i32"
TABLE: Final[dict[str, Operation]] = {
    **{name: operation("u32", "u32", lambda a: a)
       for name in ("v_mov_b32", "v_accvgpr_write_b32", "v_accvgpr_read_b32", "v_accvgpr_mov_b32")},
    "v_mov_b64": operation("u64", "u64", lambda a: a),
    "v_not_b32": operation("u32", "u32", lambda a: ~a),
    "v_bfrev_b32": operation("u32", "u32", reverse_bits),
    "v_clz_i32_u32": operation("u32", "u32", leading),
    "v_ctz_i32_b32": operation("u32", "u32", trailing),
    "v_bcnt_u32_b32": operation("u32", _A, lambda a, b: count_bits(a) + b),
    "v_and_b32": operation("u32", _A, lambda a, b: a & b),
    "v_or_b32": operation("u32", _A, lambda a, b: a | b),
    "v_xor_b32": operation("u32", _A, lambda a, b: a ^ b),
    "v_and_or_b32": operation("u32", _B, lambda a, b, c: (a & b) | c),
    "v_or3_b32": operation("u32", _B, lambda a, b, c: a | b | c),
    "v_xor3_b32": operation("u32", _B, lambda a, b, c: a ^ b ^ c),
    "v_bfi_b32": operation("u32", _B, lambda a, b, c: (a & b) | (~a & c)),
    "v_bfe_u32": operation("u32", _B, _extract),
    "v_bfe_i32": operation("u32", _B, _extract_signed),
    "v_alignbit_b32": operation("u32", _B, _align),
    "v_perm_b32": operation("u32", _B, _bytes),
    "v_lshlrev_b32": operation("u32", _A, lambda a, b: b << shift_amount(a)),
    "v_lshrrev_b32": operation("u32", _A, lambda a, b: b >> shift_amount(a)),
    "v_ashrrev_i32": operation("i32", _I, lambda a, b: b >> shift_amount(a)),
    "v_lshrrev_b16": operation("u16", "u16 u16", lambda a, b: b >> shift_amount(a, 16)),
    "v_lshlrev_b64": operation("u64", "u32 u64", lambda a, b: b << shift_amount(a, 64).astype(np.uint64)),
    "v_lshrrev_b64": operation("u64", "u32 u64", lambda a, b: b >> shift_amount(a, 64).astype(np.uint64)),
    "v_lshl_add_u32": operation("u32", _B, lambda a, b, c: (a << shift_amount(b)) + c),
    "v_lshl_add_u64": operation("u64", "u64 u32 u64", lambda a, b, c: (a << (b & np.uint32(7)).astype(np.uint64)) + c),
    "v_lshl_or_b32": operation("u32", _B, lambda a, b, c: (a << shift_amount(b)) | c),
    "v_add_lshl_u32": operation("u32", _B, lambda a, b, c: (a + b) << shift_amount(c)),
    "v_add_nc_u32": operation("u32", _A, lambda a, b: a + b),
    "v_sub_nc_u32": operation("u32", _A, lambda a, b: a - b),
    "v_subrev_nc_u32": operation("u32", _A, lambda a, b: b - a),
    "v_add_nc_i32": operation("i32", _I, lambda a, b: a + b),
    "v_add_nc_u16": operation("u16", "u16 u16", lambda a, b: a + b),
    "v_sub_nc_u16": operation("u16", "u16 u16", lambda a, b: a - b),
    "v_mul_lo_u16": operation("u16", "u16 u16", lambda a, b: a * b),
    "v_add3_u32": operation("u32", _B, lambda a, b, c: a + b + c),
    "v_xad_u32": operation("u32", _B, lambda a, b, c: (a ^ b) + c),
    "v_sad_u32": operation("u32", _B, lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c),
    "v_add_co_u32": operation("u32 mask", _A, lambda a, b: carry(widened(a) + b)),
    "v_sub_co_u32": operation("u32 mask", _A, lambda a, b: carry(widened(a) - b)),
    "v_subrev_co_u32": operation("u32 mask", _A, lambda a, b: carry(widened(b) - a)),
    "v_add_co_ci_u32": operation("u32 mask", "u32 u32 mask", lambda a, b, c: carry(widened(a) + b + c)),
    "v_sub_co_ci_u32": operation("u32 mask", "u32 u32 mask", lambda a, b, c: carry(widened(a) - b - c)),
    "v_subrev_co_ci_u32": operation("u32 mask", "u32 u32 mask", lambda a, b, c: carry(widened(b) - a - c)),
    "v_mul_lo_u32": operation("u32", _A, lambda a, b: a * b),
    "v_mul_hi_u32": operation("u32", _A, lambda a, b: to_u32((a.astype(np.uint64) * b) >> np.uint64(32))),
    "v_mul_hi_i32": operation("i32", _I, lambda a, b: ((widened(a) * b) >> 32).astype(np.int32)),
    "v_mul_u32_u24": operation("u32", _A, lambda a, b: to_u32((_low24(a) * _low24(b)) & np.uint64(0xFFFFFFFF))),
    "v_mul_i32_i24": operation("u32", _A, lambda a, b: to_u32((_signed24(a) * _signed24(b)) & 0xFFFFFFFF)),
    "v_mad_u32_u24": operation("u32", _B, lambda a, b, c: to_u32((_low24(a) * _low24(b) + c) & np.uint64(0xFFFFFFFF))),
    "v_mad_i32_i24": operation("u32", _B, lambda a, b, c: to_u32((_signed24(a) * _signed24(b) + c) & 0xFFFFFFFF)),
    "v_mad_u64_u32": operation("u64 mask", "u32 u32 u64", lambda a, b, c: _multiply_add(a.astype(np.uint64) * b, c)),
    "v_mad_i64_i32": operation("i64 mask", "i32 i32 i64", lambda a, b, c: _multiply_add_signed(widened(a) * b, c)),
    "v_max_i32": operation("i32", _I, np.maximum),
    "v_min_i32": operation("i32", _I, np.minimum),
    "v_max_u32": operation("u32", _A, np.maximum),
    "v_min_u32": operation("u32", _A, np.minimum),
    "v_cndmask_b32": operation("u32", "u32 u32 mask", lambda a, b, c: np.where(c, b, a)),
}  # fmt: skip

# Names of other generations.
ALIASES: Final = {
    "v_add_u32": "v_add_nc_u32", "v_sub_u32": "v_sub_nc_u32", "v_subrev_u32": "v_subrev_nc_u32",
    "v_add_i32": "v_add_nc_i32", "v_add_u16": "v_add_nc_u16", "v_sub_u16": "v_sub_nc_u16",
    "v_addc_co_u32": "v_add_co_ci_u32", "v_subb_co_u32": "v_sub_co_ci_u32", "v_subbrev_co_u32": "v_subrev_co_ci_u32",
    "v_mad_co_u64_u32": "v_mad_u64_u32", "v_mad_co_i64_i32": "v_mad_i64_i32",
    "v_ffbh_u32": "v_clz_i32_u32", "v_ffbl_b32": "v_ctz_i32_b32",
}  # fmt: skip
