"""Lanes that read other lanes: DPP, permutations, reads of one lane, and parts of registers (SDWA).

Controls: RDNA3 ISA, 7.7 "Data Parallel Processing (DPP)"; CDNA3 ISA, 6.2.1 and 6.3.8 for the broadcasts of rows and
SDWA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from .errors import UnknownInstruction
from .operands import DTYPES, Reader, put, register, scalar_reader, vector_reader, write_scalars
from .program import Instruction
from .waves import Array, Waves

Step = Callable[[Waves], None]
ROW: Final = 16  # lanes of a row
DPP: Final = ("quad_perm", "row_shl", "row_shr", "row_bcast", "row_mask", "bank_mask", "bound_ctrl")
SDWA: Final = ("dst_sel", "dst_unused", "src0_sel", "src1_sel")
# First bit and how many.
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
        if name == "quad_perm":
            return lane // 4 * 4 + np.array([int(word) for word in value.strip("[]").split(",")])[lane % 4]
        if name == "row_shl":
            return np.where(inside + int(value) < ROW, lane + int(value), -1)
        if name == "row_shr":
            return np.where(inside >= int(value), lane - int(value), -1)
        if name == "row_bcast":  # the last lane of a row to the next one, or of the lower half to the upper
            return np.where(row > 0, row * ROW - 1, -1) if value == "15" else np.where(lane > 31, 31, -1)
    raise UnknownInstruction(f"no control of DPP among {', '.join(modifiers)}")


def dpp(modifiers: dict[str, str], lanes: int) -> tuple[Callable[[Waves, Array], Array], Callable[[Waves], Array]]:
    """Return how the first operand is fetched, and which lanes are written."""
    source = dpp_source(modifiers, lanes)
    rows, banks = (int(modifiers.get(name, "0xf"), 0) for name in ("row_mask", "bank_mask"))
    lane = np.arange(lanes)
    enabled = ((rows >> (lane // ROW % 4)) & 1).astype(bool) & ((banks >> (lane % ROW // 4)) & 1).astype(bool)
    # Printed as 1 (or 0 by older assemblers) where what is out of bounds reads as zero.
    zero = "bound_ctrl" in modifiers

    def valid(waves: Waves) -> Array:
        return (source >= 0) & waves.active[:, source]

    def fetch(waves: Waves, value: Array) -> Array:
        fetched = np.broadcast_to(value, waves.active.shape)[:, source]
        return np.where(valid(waves), fetched, np.zeros((), fetched.dtype)).astype(fetched.dtype)

    def written(waves: Waves) -> Array:
        return np.broadcast_to(enabled, waves.active.shape) if zero else valid(waves) & enabled

    return fetch, written


def sdwa_reader(text: str, kind: str, selected: str) -> Reader:
    """Return how an operand of SDWA is read: a byte or half of a register."""
    shift, width = _SELECTED[selected]
    is_extended = text.startswith("sext(")
    if text.startswith(("-", "|")):
        raise UnknownInstruction(f"a sign of {text} in SDWA")
    read = vector_reader(text[len("sext(") : -1] if is_extended else text, "u32")
    dtype = np.dtype(DTYPES[kind])

    def selection(waves: Waves) -> Array:
        value = (read(waves) >> np.uint32(shift)) & np.uint32((1 << width) - 1)
        if is_extended and width < 32:
            value = ((value << np.uint32(32 - width)).view(np.int32) >> np.int32(32 - width)).view(np.uint32)
        return value.astype(f"u{dtype.itemsize}").view(dtype)

    return selection


def read_lane(instruction: Instruction) -> Step:
    """`v_readlane_b32`, `v_readfirstlane_b32`: one lane into a scalar register; the first active one, or lane 0."""
    target = register(instruction.operands[0], "s")
    read = vector_reader(instruction.operands[1], "u32")
    chosen = scalar_reader(instruction.operands[2], "u32") if len(instruction.operands) > 2 else None

    def step(waves: Waves) -> None:
        lane = np.argmax(waves.active, axis=1) if chosen is None else chosen(waves) & np.uint32(waves.lanes - 1)
        value = np.broadcast_to(read(waves), waves.active.shape)
        write_scalars(waves, target, [value[np.arange(waves.count), lane]])

    return step


def write_lane(instruction: Instruction) -> Step:
    """`v_writelane_b32`: a scalar into one lane, active or not."""
    target = register(instruction.operands[0], "v")
    value, chosen = (scalar_reader(text, "u32") for text in instruction.operands[1:3])

    def step(waves: Waves) -> None:
        waves.use(("v", target))
        waves.vectors[target][np.arange(waves.count), chosen(waves) & np.uint32(waves.lanes - 1)] = value(waves)

    return step


def permute_rows(instruction: Instruction) -> Step:
    """`v_permlanex16_b32`: any lane of the row beside the own."""
    target = register(instruction.operands[0], "v")
    read = vector_reader(instruction.operands[1], "u32")
    low, high = (scalar_reader(text, "u32") for text in instruction.operands[2:4])
    options = instruction.modifiers.get("op_sel", "[0,0]").strip("[]").split(",")
    inactive, zero = options[0] == "1", options[1] == "1"

    def step(waves: Waves) -> None:
        lane = np.arange(waves.lanes)
        nibble = (4 * (lane % 8)).astype(np.uint32)
        chosen = np.where(lane % ROW < 8, low(waves)[:, None] >> nibble, high(waves)[:, None] >> nibble) & np.uint32(15)
        source = (lane // ROW ^ 1) * ROW + np.broadcast_to(chosen, waves.active.shape)
        waves_ = np.arange(waves.count)[:, None]
        valid = waves.active[waves_, source] | inactive
        value = np.broadcast_to(read(waves), waves.active.shape)[waves_, source]
        put(waves, target, np.where(valid, value, np.uint32(0)), 32, None if zero else valid)

    return step


STEPS: Final[dict[str, Callable[[Instruction], Step]]] = {
    "v_readlane_b32": read_lane, "v_readfirstlane_b32": read_lane, "v_writelane_b32": write_lane,
    "v_permlanex16_b32": permute_rows,
}  # fmt: skip
