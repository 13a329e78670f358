"""Pieces of memory that an instruction moves between registers and memory, by the last part of its mnemonic."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from .errors import MemoryFault, UnknownInstruction
from .operands import register, registers
from .program import Program
from .store import Lanes
from .waves import Array, Register, Waves


class Piece(NamedTuple):
    """What a load or store moves.

    Attributes:
        size: Bytes of memory.
        signed: Whether a small one is extended with its sign.
        half: `None`, or which half of a register alone it is in: 0 or 1.
        keeps: Whether a load into a half leaves the other as it is; otherwise it becomes zero.
    """

    size: int
    signed: bool = False
    half: int | None = None
    keeps: bool = True


_SIZES: Final = {
    "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "b32": 4, "b64": 8, "b96": 12, "b128": 16,
    "ubyte": 1, "sbyte": 1, "byte": 1, "u8": 1, "i8": 1, "b8": 1,
    "ushort": 2, "sshort": 2, "short": 2, "u16": 2, "i16": 2, "b16": 2,
}  # fmt: skip


def piece(name: str, keeps_halves: bool = True) -> Piece:
    """Return what the last part of a mnemonic says: `dwordx4`, `u16_d16_hi`, `d16_hi_b16`.

    Args:
        name: The part.
        keeps_halves: See `Program.keeps_halves`.

    Raises:
        UnknownInstruction: Something else.
    """
    words = name.split("_")
    half = (1 if "hi" in words else 0) if "d16" in words else None
    sizes = [word for word in words if word not in ("d16", "hi")]
    if len(sizes) != 1 or sizes[0] not in _SIZES:
        raise UnknownInstruction(f"no access of kind {name}")
    return Piece(_SIZES[sizes[0]], sizes[0] in ("sbyte", "i8", "sshort", "i16"), half, keeps_halves)


def smallest(program: Program, prefixes: tuple[str, ...]) -> int:
    """Return the bytes of the smallest access among a program's instructions of some kinds, at most 4."""
    sizes = [4]
    for instruction in program.instructions:
        if instruction.name.startswith(prefixes):
            if re.search(r"(byte|[ui]8|b8)(_d16(_hi)?)?$", instruction.name):
                sizes.append(1)
            elif re.search(r"(short|[ui]16|b16)(_d16(_hi)?)?$", instruction.name):
                sizes.append(2)
    return min(sizes)


def place_of(target: str, size: int) -> tuple[int, list[Register]]:
    """Return the first of the registers that so many bytes go to or come from, and all of them.

    Raises:
        UnknownInstruction: The operand is of another size.
    """
    return register(target, "v", max(1, size // 4)), registers(target)


def fill(waves: Waves, first: int, lanes: Lanes, values: Array, what: Piece) -> None:
    """Put bytes that were read into registers of the lanes."""
    if what.size >= 4:
        words = np.ascontiguousarray(values).view("<u4")
        for part in range(what.size // 4):
            waves.vectors[first + part][lanes.index, lanes.lane] = words[:, part]
        return
    raw = np.ascontiguousarray(values).view(f"<{'i' if what.signed else 'u'}{what.size}")[:, 0]
    word = raw.astype(np.int64).astype(np.uint32)
    if what.half is not None:
        old = waves.vectors[first][lanes.index, lanes.lane] if what.keeps else np.zeros_like(word)
        low = word & np.uint32(0xFFFF)
        word = (old & np.uint32(0xFFFF)) | (low << np.uint32(16)) if what.half else (old & np.uint32(0xFFFF0000)) | low
    waves.vectors[first][lanes.index, lanes.lane] = word


def take(waves: Waves, first: int, keys: Iterable[Register], lanes: Lanes, what: Piece) -> Array:
    """Return the bytes that the lanes store: lanes x bytes."""
    waves.use(*keys)
    count = max(1, what.size // 4)
    words = np.stack([waves.vectors[first + part][lanes.index, lanes.lane] for part in range(count)], axis=1)
    if what.size < 4:
        if what.half:
            words = words >> np.uint32(16)
        return np.ascontiguousarray(words).view(np.uint8)[:, : what.size]
    return np.ascontiguousarray(words).view(np.uint8)


def check_alignment(offset: Array, to: int, where: str) -> None:
    """Check that every offset is a multiple of a number of bytes.

    Raises:
        MemoryFault: One is not.
    """
    if (offset % to).any():
        wrong = int(offset[np.argmax(offset % to != 0)])
        raise MemoryFault(f"unaligned: {where}{wrong:+#x} is not a multiple of {to}")
