"""Scalar instructions (SOP1, SOP2, SOPK, SOPC): one value for a wave, and the condition code.

Pseudocode: AMD's RDNA3 ISA document, 16.1 to 16.4. Each entry gives the result and what becomes of the condition code:
it is set where the result is not zero, by a carry or a comparison, or stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from . import floats
from .errors import UnknownInstruction
from .integers import carry, count_bits, leading, reverse_bits, shift_amount, to_u32, trailing, widened
from .operands import no_modifiers, scalar_reader, scalar_writer
from .program import Instruction
from .waves import Array, Waves

Step = Callable[[Waves], None]
# A function that returns the result, or the result and the condition code.
_NONZERO, _KEEP, _GIVEN = "set where the result is not zero", "unchanged", "returned with the result"


def _overflow(value: Array) -> tuple[Array, Array]:
    return to_u32(value & 0xFFFFFFFF), (value < -(1 << 31)) | (value >= 1 << 31)


def _field(value: Array, control: Array) -> Array:
    """Extract bits: the offset in the low bits of the control, the width from bit 16."""
    unsigned = value.view(np.uint32)
    width = np.minimum((control >> np.uint32(16)) & np.uint32(0x7F), np.uint32(32))
    last = np.where(width == 32, np.uint32(0), np.uint32(1) << shift_amount(width))
    field = (unsigned >> shift_amount(control)) & (last - np.uint32(1)).astype(np.uint32)
    if value.dtype.kind == "u":
        return field
    sign = np.where(width > 0, last >> np.uint32(1), 0).astype(np.uint32)
    return ((field ^ sign) - sign).view(value.dtype)


def _extremum(first: Any) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return the operation that takes its first operand, and says so, where a comparison is true."""

    def compute(a: Array, b: Array) -> tuple[Array, Array]:
        chosen = first(a, b)
        return np.where(chosen, a, b), chosen

    return compute


def _sized(name: str, compute: Callable[..., Any], scc: str, operands: int = 2) -> dict[str, tuple[str, str, Any, str]]:
    """Return entries for 32 and for 64 bits."""
    return {f"{name}_b{bits}": (f"u{bits}", " ".join([f"u{bits}"] * operands), compute, scc) for bits in (32, 64)}


# name -> result, operands, function, what becomes of the condition code
_TABLE: Final[dict[str, tuple[str, str, Callable[..., Any], str]]] = {
    **_sized("s_mov", lambda a: a, _KEEP, 1),
    **_sized("s_not", lambda a: ~a, _NONZERO, 1),
    **_sized("s_and", lambda a, b: a & b, _NONZERO),
    **_sized("s_or", lambda a, b: a | b, _NONZERO),
    **_sized("s_xor", lambda a, b: a ^ b, _NONZERO),
    **_sized("s_nand", lambda a, b: ~(a & b), _NONZERO),
    **_sized("s_andn2", lambda a, b: a & ~b, _NONZERO),
    **_sized("s_orn2", lambda a, b: a | ~b, _NONZERO),
    "s_lshl_b32": ("u32", "u32 u32", lambda a, b: a << shift_amount(b), _NONZERO),
    "s_lshl_b64": ("u64", "u64 u32", lambda a, b: a << shift_amount(b, 64).astype(np.uint64), _NONZERO),
    "s_lshr_b32": ("u32", "u32 u32", lambda a, b: a >> shift_amount(b), _NONZERO),
    "s_lshr_b64": ("u64", "u64 u32", lambda a, b: a >> shift_amount(b, 64).astype(np.uint64), _NONZERO),
    "s_ashr_i32": ("i32", "i32 u32", lambda a, b: a >> shift_amount(b).astype(np.int32), _NONZERO),
    "s_ashr_i64": ("i64", "i64 u32", lambda a, b: a >> shift_amount(b, 64).astype(np.int64), _NONZERO),
    "s_bfe_u32": ("u32", "u32 u32", _field, _NONZERO),
    "s_bfe_i32": ("i32", "i32 u32", _field, _NONZERO),
    "s_brev_b32": ("u32", "u32", reverse_bits, _KEEP),
    "s_bcnt1_i32_b32": ("u32", "u32", count_bits, _NONZERO),
    "s_bcnt1_i32_b64": ("u32", "u64", count_bits, _NONZERO),
    "s_clz_i32_u32": ("u32", "u32", leading, _KEEP),
    "s_ctz_i32_b32": ("u32", "u32", trailing, _KEEP),
    "s_abs_i32": ("u32", "i32", lambda a: np.where(a < 0, -a, a).view(np.uint32), _NONZERO),
    "s_add_u32": ("u32", "u32 u32", lambda a, b: carry(widened(a) + b), _GIVEN),
    "s_sub_u32": ("u32", "u32 u32", lambda a, b: carry(widened(a) - b), _GIVEN),
    "s_addc_u32": ("u32", "u32 u32 scc", lambda a, b, c: carry(widened(a) + b + c), _GIVEN),
    "s_subb_u32": ("u32", "u32 u32 scc", lambda a, b, c: carry(widened(a) - b - c), _GIVEN),
    "s_add_i32": ("u32", "i32 i32", lambda a, b: _overflow(widened(a) + b), _GIVEN),
    "s_sub_i32": ("u32", "i32 i32", lambda a, b: _overflow(widened(a) - b), _GIVEN),
    "s_add_nc_u64": ("u64", "u64 u64", lambda a, b: a + b, _KEEP),
    "s_sub_nc_u64": ("u64", "u64 u64", lambda a, b: a - b, _KEEP),
    "s_mul_u64": ("u64", "u64 u64", lambda a, b: a * b, _KEEP),
    "s_mul_i32": ("u32", "u32 u32", lambda a, b: a * b, _KEEP),
    "s_mul_hi_u32": ("u32", "u32 u32", lambda a, b: to_u32((a.astype(np.uint64) * b) >> np.uint64(32)), _KEEP),
    "s_mul_hi_i32": ("i32", "i32 i32", lambda a, b: ((widened(a) * b) >> 32).astype(np.int32), _KEEP),
    "s_min_i32": ("i32", "i32 i32", _extremum(np.less), _GIVEN),
    "s_max_i32": ("i32", "i32 i32", _extremum(np.greater_equal), _GIVEN),
    "s_cselect_b32": ("u32", "u32 u32 scc", lambda a, b, c: np.where(c != 0, a, b), _KEEP),
    "s_cselect_b64": ("u64", "u64 u64 scc", lambda a, b, c: np.where(c != 0, a, b), _KEEP),
    "s_bitset0_b32": ("u32", "u32 old", lambda a, b: b & ~(np.uint32(1) << shift_amount(a, 32)), _KEEP),
    "s_pack_lh_b32_b16": ("u32", "u32 u32", lambda a, b: (a & np.uint32(0xFFFF)) | (b & np.uint32(0xFFFF0000)), _KEEP),
    "s_fmac_f32": ("f32", "f32 f32 old", lambda a, b, c: floats.TABLE["v_fma_f32"].compute(a, b, c), _KEEP),
}  # fmt: skip
_ALIASES: Final = {
    "v_s_rcp_f32": "s_rcp_f32", "s_min_num_f32": "s_min_f32", "s_max_num_f32": "s_max_f32",
    "s_add_co_i32": "s_add_i32", "s_sub_co_i32": "s_sub_i32", "s_add_co_u32": "s_add_u32", "s_sub_co_u32": "s_sub_u32",
    "s_add_co_ci_u32": "s_addc_u32", "s_sub_co_ci_u32": "s_subb_u32",
    "s_and_not1_b32": "s_andn2_b32", "s_and_not1_b64": "s_andn2_b64",
    "s_or_not1_b32": "s_orn2_b32", "s_or_not1_b64": "s_orn2_b64",
    "s_ff1_i32_b32": "s_ctz_i32_b32", "s_flbit_i32_b32": "s_clz_i32_u32",
}  # fmt: skip
# Instructions with a constant of 16 bits and a register that is read and written.
_SHORT: Final = {"s_addk_i32": "s_add_i32", "s_addk_co_i32": "s_add_i32", "s_mulk_i32": "s_mul_i32"}
_COMPARE: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "eq": lambda a, b: a == b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "lg": lambda a, b: (a < b) | (a > b), "neq": lambda a, b: a != b,  # of NaN the last only
}  # fmt: skip
_MASKS: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "and": lambda s, e: s & e, "or": lambda s, e: s | e, "xor": lambda s, e: s ^ e, "andn2": lambda s, e: s & ~e,
    "and_not1": lambda s, e: s & ~e,
}  # fmt: skip


def decode(instruction: Instruction) -> Step:
    """Return what a scalar instruction does.

    Raises:
        UnknownInstruction: It is in none of the tables.
    """
    name, operands = _ALIASES.get(instruction.name, instruction.name), instruction.operands
    no_modifiers(instruction.modifiers)
    if name in _TABLE:
        return _ordinary(name, operands[0], list(operands[1:]))
    if name in _SHORT:
        return _ordinary(_SHORT[name], operands[0], [operands[0], _extended(operands[1])])
    if name == "s_movk_i32":
        return _ordinary("s_mov_b32", operands[0], [_extended(operands[1])])
    if name.startswith(("s_cmp_", "s_cmpk_")):
        return _comparison(name, operands)
    if name.rpartition("_")[0].endswith("_saveexec"):
        return _save_exec(name, operands)
    if f"v_{name[2:]}" in floats.TABLE and name.startswith("s_"):
        return _floating(name, operands)
    raise UnknownInstruction(f"unknown instruction {instruction.name}")


def _extended(text: str) -> str:
    """Return a constant of 16 bits with its sign."""
    value = int(text, 0) & 0xFFFF
    return str(value - 0x10000 if value & 0x8000 else value)


def _ordinary(name: str, target: str, sources: list[str]) -> Step:
    result, kinds, compute, scc = _TABLE[name]
    wanted = kinds.split()
    if "old" in wanted:
        sources.append(target)
        wanted = [result if kind == "old" else kind for kind in wanted]
    if wanted[-1] == "scc":
        sources, wanted = [*sources, "scc"], [*wanted[:-1], "u32"]
    if len(sources) != len(wanted):
        raise UnknownInstruction(f"{name} with {len(sources)} operands")
    readers = [scalar_reader(text, kind) for text, kind in zip(sources, wanted, strict=True)]
    write = scalar_writer(target, result)

    def step(waves: Waves) -> None:
        value = compute(*(read(waves) for read in readers))
        if scc == _GIVEN:
            value, condition = value
            waves.scc = np.broadcast_to(condition, waves.scc.shape).copy()
        elif scc == _NONZERO:
            waves.scc = np.broadcast_to(value != 0, waves.scc.shape).copy()
        write(waves, value)

    return step


def _comparison(name: str, operands: tuple[str, ...]) -> Step:
    short, _, rest = name.removeprefix("s_").partition("_")
    word, kind = rest.split("_")
    left, right = operands
    if short == "cmpk":
        right = _extended(right) if kind[0] == "i" else str(int(right, 0) & 0xFFFF)
    if word not in _COMPARE or kind not in ("i32", "u32", "u64", "f32"):
        raise UnknownInstruction(f"unknown instruction {name}")
    readers, compare = [scalar_reader(text, kind) for text in (left, right)], _COMPARE[word]

    def step(waves: Waves) -> None:
        waves.scc = np.broadcast_to(compare(*(read(waves) for read in readers)), waves.scc.shape).copy()

    return step


def _save_exec(name: str, operands: tuple[str, ...]) -> Step:
    word = name.removeprefix("s_").partition("_saveexec_b")
    bits, compute = int(word[2]), _MASKS[word[0]]
    read, write = scalar_reader(operands[1], f"u{bits}"), scalar_writer(operands[0], f"u{bits}")
    exec_name = "exec" if bits == 64 else "exec_lo"
    read_exec, write_exec = scalar_reader(exec_name, f"u{bits}"), scalar_writer(exec_name, f"u{bits}")

    def step(waves: Waves) -> None:
        mask, saved = np.broadcast_to(read(waves), waves.scc.shape).copy(), read_exec(waves).copy()
        result = compute(mask, saved)
        write(waves, saved)
        write_exec(waves, result)
        waves.scc = np.asarray(result != 0)

    return step


def _floating(name: str, operands: tuple[str, ...]) -> Step:
    """Scalar floating point of gfx11.5 and gfx12: the vector unit's operations on one value."""
    operation = floats.TABLE[f"v_{name[2:]}"]
    readers = [scalar_reader(text, kind) for text, kind in zip(operands[1:], operation.operands, strict=True)]
    write = scalar_writer(operands[0], operation.results[0])

    def step(waves: Waves) -> None:
        value = operation.compute(*(read(waves) for read in readers))
        write(waves, value)

    return step
