"""What a row of the tables says, and short names for bits of numbers."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from ..single import EVERY, Value

NAN = "nan"  # wanted: any NaN of fp32
QUIET = 0x7FC00000  # a quiet NaN of fp32


@dataclass(frozen=True)
class Row:
    """Registers before and after instructions.

    `wanted` is of every lane, of the first lanes, or `NAN`; a name that ends in `.l` is of a register's lower half.
    """

    text: str
    given: Mapping[str, Value]
    wanted: Mapping[str, Value | str | list[str]]
    on: tuple[str, ...] = EVERY


def f32(*values: float) -> int:
    """Return the bits of an fp32 number, or of two in a pair of registers, the first in the lower one."""
    return sum(
        int(struct.unpack("<I", struct.pack("<f", value))[0]) << 32 * place for place, value in enumerate(values)
    )


def f64(value: float) -> int:
    """Return the bits of an fp64 number."""
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def f16(*values: float) -> int:
    """Return the bits of an fp16 number, or of two in a register, the first in the lower half."""
    return sum(
        int(struct.unpack("<H", struct.pack("<e", value))[0]) << 16 * place for place, value in enumerate(values)
    )
