"""Lanes that read other lanes: DPP, permutations, reads of one lane, and parts of registers (SDWA).

Controls: RDNA3 ISA, 7.7 "Data Parallel Processing (DPP)"; CDNA3 ISA, 6.2.1 and 6.3.8 for the broadcasts of rows and
SDWA.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np

from .errors import UnknownInstruction
from .operands import DTYPES, Reader, place, scalar_reader, vector_reader, write_scalars
from .operands import put as put_vector
from .program import Instruction
from .waves import Array, Waves

Step = Callable[[Waves], None]
ROW: Final = 16  # lanes of a row
DPP: Final = frozenset((
    "quad_perm", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_share", "row_xmask",
    "row_bcast", "row_newbcast", "wave_shl", "wave_shr", "wave_rol", "wave_ror", "dpp8",
    "row_mask", "bank_mask", "bound_ctrl", "fi",
))  # fmt: skip
SDWA: Final = frozenset(("dst_sel", "dst_unused", "src0_sel", "src1_sel"))
_SELECTED: Final = {
    "DWORD": (0, 32), "WORD_0": (0, 16), "WORD_1": (16, 16),
    "BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8),
}  # fmt: skip


def dpp_source(modifiers: dict[str, str], lanes: int) -> Array:
    """Return the lane that each lane reads, -1 where there is none.

    Raises:
        UnknownInstruction: A control that nobody has written down.
    """
    lane = np.arange(lanes)
    row, inside = lane // ROW, lane % ROW
    for name, value in modifiers.items():
        if name in ("quad_perm", "dpp8"):
            chosen = np.array([int(word) for word in value.strip("[]").split(",")])
            return lane // len(chosen) * len(chosen) + chosen[lane % len(chosen)]
        amount = int(value, 0) if value else 0
        if name == "row_shl":
            return np.where(inside + amount < ROW, lane + amount, -1)
        if name == "row_shr":
            return np.where(inside >= amount, lane - amount, -1)
        if name == "row_ror":
            return row * ROW + (inside - amount) % ROW
        if name == "row_mirror":
            return row * ROW + 15 - inside
        if name == "row_half_mirror":
            return lane // 8 * 8 + 7 - lane % 8
        if name in ("row_share", "row_newbcast"):
            return row * ROW + amount
        if name == "row_xmask":
            return row * ROW + (inside ^ amount)
        if name == "row_bcast":  # the last lane of a row to the next one, or of the lower half to the upper
            return np.where(row > 0, row * ROW - 1, -1) if amount == 15 else np.where(lane > 31, 31, -1)
        if name in ("wave_shl", "wave_shr"):
            source = lane + 1 if name == "wave_shl" else lane - 1
            return np.where(source < lanes, source, -1)
        if name in ("wave_rol", "wave_ror"):
            return (lane + (1 if name == "wave_rol" else -1)) % lanes
    raise UnknownInstruction(f"no control of DPP among {', '.join(modifiers)}")


def dpp(modifiers: dict[str, str], lanes: int) -> tuple[Callable[[Waves, Array], Array], Callable[[Waves], Array]]:
    """Return how the first operand is fetched, and which lanes are written."""
    source = dpp_source(modifiers, lanes)
    rows, banks = (int(modifiers.get(name, "0xf"), 0) for name in ("row_mask", "bank_mask"))
    lane = np.arange(lanes)
    enabled = ((rows >> (lane // ROW % 4)) & 1).astype(bool) & ((banks >> (lane % ROW // 4)) & 1).astype(bool)
    # Printed as 1 (or 0 by older assemblers) where what is out of bounds reads as zero.
    zero = "bound_ctrl" in modifiers or "dpp8" in modifiers
    inactive = modifiers.get("fi") == "1"

    def valid(waves: Waves) -> Array:
        inside = np.broadcast_to(source >= 0, waves.active.shape)
        return inside if inactive else inside & waves.active[:, source]

    def fetch(waves: Waves, value: Array) -> Array:
        fetched = np.broadcast_to(value, waves.active.shape)[:, source]
        return np.where(valid(waves), fetched, np.zeros((), fetched.dtype)).astype(fetched.dtype)

    def written(waves: Waves) -> Array:
        return np.broadcast_to(enabled, waves.active.shape) if zero else valid(waves) & enabled

    return fetch, written


def sdwa_reader(text: str, kind: str, selected: str) -> Reader:
    """Return how an operand of SDWA is read: a byte or half of a register."""
    shift, width = _SELECTED[selected]
    signed = re.fullmatch(r"sext\((.*)\)", text)
    sign, inner = ("-" if text.startswith("-") else ""), signed[1] if signed else text.lstrip("-")
    absolute = inner.startswith("|")
    read = vector_reader(inner.strip("|"), "u32")
    if (sign or absolute) and kind[0] != "f":
        raise UnknownInstruction(f"a sign before {text} in SDWA")
    dtype = np.dtype(DTYPES[kind])

    def selection(waves: Waves) -> Array:
        value = (read(waves) >> np.uint32(shift)) & np.uint32((1 << width) - 1)
        if signed and width < 32:
            value = ((value << np.uint32(32 - width)).view(np.int32) >> np.int32(32 - width)).view(np.uint32)
        seen: Array = value.astype(f"u{dtype.itemsize}").view(dtype)
        if absolute:
            seen = np.abs(seen)
        return -seen if sign else seen

    return selection


def sdwa_write(waves: Waves, first: int, value: Array, modifiers: dict[str, str]) -> None:
    """Write a result of SDWA into a byte or half of a register."""
    shift, width = _SELECTED[modifiers.get("dst_sel", "DWORD")]
    raw = value.view(f"u{value.itemsize}").astype(np.uint32)
    if width < 32:
        ones = np.uint32((1 << width) - 1)
        raw = (raw & ones) << np.uint32(shift)
        unused = modifiers.get("dst_unused", "UNUSED_PAD")
        if unused == "UNUSED_PRESERVE":
            raw = raw | (waves.vectors[first] & ~(ones << np.uint32(shift)))
        elif unused != "UNUSED_PAD":
            raise UnknownInstruction(f"dst_unused:{unused}")
    put_vector(waves, first, np.broadcast_to(raw, waves.active.shape), 32)


def _read_first(waves: Waves) -> Array:
    """Return the lowest active lane of each wave; lane 0 where none is."""
    return np.argmax(waves.active, axis=1)


def read_lane(instruction: Instruction) -> Step:
    """`v_readlane_b32`, `v_readfirstlane_b32`: one lane into a scalar register."""
    target = place(instruction.operands[0])
    if target is None or target[0] != "s":
        raise UnknownInstruction(f"{instruction.operands[0]} is no scalar register")
    read = vector_reader(instruction.operands[1], "u32")
    chosen = scalar_reader(instruction.operands[2], "u32") if len(instruction.operands) > 2 else None

    def step(waves: Waves) -> None:
        lane = _read_first(waves) if chosen is None else chosen(waves) & np.uint32(waves.lanes - 1)
        value = np.broadcast_to(read(waves), waves.active.shape)
        write_scalars(waves, target[1], [value[np.arange(waves.count), lane]])

    return step


def write_lane(instruction: Instruction) -> Step:
    """`v_writelane_b32`: a scalar into one lane, active or not."""
    target = place(instruction.operands[0])
    if target is None or target[0] != "v":
        raise UnknownInstruction(f"{instruction.operands[0]} is no vector register")
    value, chosen = (scalar_reader(text, "u32") for text in instruction.operands[1:3])

    def step(waves: Waves) -> None:
        if target[:2] in waves.pending:
            waves.use(target[:2])
        waves.vectors[target[1]][np.arange(waves.count), chosen(waves) & np.uint32(waves.lanes - 1)] = value(waves)

    return step


def count_below(instruction: Instruction) -> Step:
    """`v_mbcnt_lo_u32_b32`, `v_mbcnt_hi_u32_b32`: ones of a mask below the lane, in its lower or upper half."""
    target = place(instruction.operands[0])
    assert target is not None
    mask, addend = (vector_reader(text, "u32") for text in instruction.operands[1:3])
    upper = "_hi_" in instruction.name

    def step(waves: Waves) -> None:
        lane = np.arange(waves.lanes)
        below = np.clip(lane - 32, 0, 32) if upper else np.minimum(lane, 32)
        ones = np.array([(1 << int(n)) - 1 for n in below], np.uint64)
        seen = np.broadcast_to(mask(waves), waves.active.shape).astype(np.uint64) & ones
        raw = np.ascontiguousarray(seen).view(np.uint8).reshape(*seen.shape, 8)
        counted = np.unpackbits(raw, axis=-1).sum(axis=-1).astype(np.uint32)
        put_vector(waves, target[1], counted + addend(waves), 32)

    return step


def permute_rows(instruction: Instruction) -> Step:
    """`v_permlane16_b32`, `v_permlanex16_b32`: any lane of the own row, or of the row beside it."""
    target = place(instruction.operands[0])
    assert target is not None
    read = vector_reader(instruction.operands[1], "u32")
    low, high = (scalar_reader(text, "u32") for text in instruction.operands[2:4])
    options = instruction.modifiers.get("op_sel", "[0,0]").strip("[]").split(",")
    inactive, zero = options[0] == "1", options[1] == "1"
    other = 1 if "lanex" in instruction.name else 0

    def step(waves: Waves) -> None:
        lane = np.arange(waves.lanes)
        nibble = (4 * (lane % 8)).astype(np.uint32)
        chosen = np.where(lane % ROW < 8, low(waves)[:, None] >> nibble, high(waves)[:, None] >> nibble) & np.uint32(15)
        source = (lane // ROW ^ other) * ROW + np.broadcast_to(chosen, waves.active.shape)
        waves_ = np.arange(waves.count)[:, None]
        valid = waves.active[waves_, source] | inactive
        value = np.broadcast_to(read(waves), waves.active.shape)[waves_, source]
        put_vector(waves, target[1], np.where(valid, value, np.uint32(0)), 32, None if zero else valid)

    return step


def swap_halves(instruction: Instruction) -> Step:
    """`v_permlane64_b32`: the lane 32 away; nothing happens in a wave of 32."""
    target = place(instruction.operands[0])
    assert target is not None
    read = vector_reader(instruction.operands[1], "u32")

    def step(waves: Waves) -> None:
        put_vector(waves, target[1], np.roll(np.broadcast_to(read(waves), waves.active.shape), 32, axis=1), 32)

    return step


def swizzled(offset: str, lanes: int) -> Array:
    """Return the lane that each lane reads in `ds_swizzle_b32`."""
    lane = np.arange(lanes)
    match = re.fullmatch(r"swizzle\((\w+),\s*(.*)\)", offset)
    if match is None:
        return _swizzled_by_number(int(offset, 0), lane)
    mode, words = match[1], match[2].replace('"', "").split(",")
    if mode == "SWAP":
        return lane ^ int(words[0])
    if mode == "REVERSE":
        return lane ^ (int(words[0]) - 1)
    if mode == "BROADCAST":
        return lane // int(words[0]) * int(words[0]) + int(words[1])
    if mode == "QUAD_PERM":
        return lane // 4 * 4 + np.array([int(word) for word in words])[lane % 4]
    if mode == "BITMASK_PERM":
        pattern = words[0].strip()
        keep, ones, flip = (
            int("".join("1" if bit in kind else "0" for bit in pattern), 2) for kind in ("pi", "1", "i")
        )
        return lane & ~31 | ((lane & 31 & keep) | ones) ^ flip
    raise UnknownInstruction(f"offset:{offset}")


def _swizzled_by_number(offset: int, lane: Array) -> Array:
    if offset & 0x8000:
        return lane // 4 * 4 + (offset >> (2 * (lane % 4))) % 4
    keep, ones, flip = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    return lane & ~31 | ((lane & keep) | ones) ^ flip


STEPS: Final[dict[str, Callable[[Instruction], Step]]] = {
    "v_readlane_b32": read_lane, "v_readfirstlane_b32": read_lane, "v_writelane_b32": write_lane,
    "v_mbcnt_lo_u32_b32": count_below, "v_mbcnt_hi_u32_b32": count_below,
    "v_permlane16_b32": permute_rows, "v_permlanex16_b32": permute_rows, "v_permlane64_b32": swap_halves,
}  # fmt: skip
