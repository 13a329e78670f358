"""Operands: how an instruction reads and writes registers and constants, as arrays over waves and lanes.

A reader is made once for each operand of each instruction. Vector instructions read arrays of waves x lanes (a scalar
register as waves x 1), scalar instructions arrays over waves. A type such as `f32` or `u64` says how bits are seen.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .errors import UnknownInstruction
from .waves import ACCUMULATORS, EXEC, FLAT_SCRATCH, M0, TTMP, VCC, XNACK, Array, Waves, to_lanes, to_words

Place = tuple[str, int, int]
Reader = Callable[[Waves], Array]
Writer = Callable[[Waves, Array], None]

DTYPES: Final[dict[str, Any]] = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32,
    "u64": np.uint64, "i64": np.int64,
    "u16": np.uint16, "i16": np.int16, "f16": np.float16,
}  # fmt: skip
_SPECIAL: Final = {
    "vcc": VCC, "vcc_lo": VCC, "vcc_hi": VCC + 1, "exec": EXEC, "exec_lo": EXEC, "exec_hi": EXEC + 1, "m0": M0,
    "flat_scratch": FLAT_SCRATCH, "flat_scratch_lo": FLAT_SCRATCH, "flat_scratch_hi": FLAT_SCRATCH + 1,
    "xnack_mask": XNACK, "xnack_mask_lo": XNACK, "xnack_mask_hi": XNACK + 1,
}  # fmt: skip
_REGISTER: Final = re.compile(r"^(v|s|a|ttmp)(?:(\d+)|\[(\d+):(\d+)\])$")
_FLOAT: Final = re.compile(r"^-?\d+\.\d+(e[-+]?\d+)?$")
_INVERSE_TWO_PI: Final = 0x3E22F983  # of fp32, which is printed short
_FORMATS: Final = {"16": "<e", "32": "<f", "64": "<d"}


def place(text: str) -> Place | None:
    """Return the file (`v` or `s`), the place and the length of a register; None for what is none."""
    if text in _SPECIAL:
        return "s", _SPECIAL[text], 2 if text in ("vcc", "exec", "flat_scratch", "xnack_mask") else 1
    match = _REGISTER.match(text)
    if match is None:
        return None
    first = int(match[2] or match[3])
    length = 1 if match[2] else int(match[4]) - first + 1
    if match[1] in ("v", "a"):
        return "v", first + (ACCUMULATORS if match[1] == "a" else 0), length
    return "s", first + (TTMP if match[1] == "ttmp" else 0), length


def registers(text: str) -> list[tuple[str, int]]:
    """Return the registers of an operand, one by one."""
    where = place(text)
    return [] if where is None else [(where[0], where[1] + part) for part in range(where[2])]


def register(text: str, file: str, length: int | None = None) -> int:
    """Return the place of a register.

    Args:
        text: The operand.
        file: `v` or `s`.
        length: How many registers it has to be.

    Raises:
        UnknownInstruction: It is something else.
    """
    where = place(text)
    if where is None or where[0] != file or length not in (None, where[2]):
        raise UnknownInstruction(f"{text} is not {length or 1} registers of file {file}")
    return where[1]


def constant(text: str, kind: str) -> int:
    """Return the bits of a constant as an operand of a type sees it.

    Raises:
        UnknownInstruction: It is no constant.
    """
    if text == "0.15915494" and kind[1:] == "32":
        return _INVERSE_TWO_PI
    if _FLOAT.match(text):
        return int.from_bytes(struct.pack(_FORMATS[kind[1:]], float(text)), "little")
    try:
        value = 0 if text == "null" else int(text, 0)
    except ValueError:
        raise UnknownInstruction(f"cannot read the operand {text!r}") from None
    return value & ((1 << int(kind[1:])) - 1)


def _fixed(text: str, kind: str) -> Array:
    value = constant(text, kind)
    return _seen((np.array([value & 0xFFFFFFFF], np.uint32), np.array([value >> 32], np.uint32)), kind)


def vector_reader(text: str, kind: str, where: Place | None = None) -> Reader:
    """Return how a vector instruction reads an operand: waves x lanes, or what stands for it.

    Args:
        text: The operand.
        kind: Its type.
        where: The register, where it is another than the text says.
    """
    if kind == "mask":
        return mask_reader(text)
    text, negative, absolute = _signs(text)
    where = where or place(text)
    if where is None:
        fixed = _fixed(text, kind)[:, None]
        read: Reader = lambda waves: fixed  # noqa: E731
    else:
        if kind[1:] == "64" and where[2] != 2:
            raise UnknownInstruction(f"{text} is no 64-bit operand")
        read = _file_reader(where, kind)
    return _with_signs(read, kind, negative, absolute) if negative or absolute else read


def _signs(text: str) -> tuple[str, bool, bool]:
    """Return an operand without its signs, and which it had: minus, absolute value."""
    negative = text.startswith("-") and not text[1:2].isdigit()
    text = text[1:] if negative else text
    absolute = text.startswith("|") and text.endswith("|")
    return text[1:-1] if absolute else text, negative, absolute


def _file_reader(where: Place, kind: str) -> Reader:
    file, first, _ = where
    keys = [(file, first + part) for part in range(2 if kind[1:] == "64" else 1)]

    def read(waves: Waves) -> Array:
        waves.use(*keys)
        words = [waves.vectors[at] if file == "v" else waves.scalars[at][:, None] for _, at in keys]
        return _seen((words[0], words[-1]), kind)

    return read


def _words(value: Array) -> tuple[Array, Array]:
    return (value & np.uint64(0xFFFFFFFF)).astype(np.uint32), (value >> np.uint64(32)).astype(np.uint32)


def _seen(words: tuple[Array, Array], kind: str) -> Array:
    """Return 32-bit words as a type; the second word counts for types of 64 bits."""
    low, high = words
    if kind[1:] == "64":
        low = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
    elif kind[1:] == "16":
        low = low.astype(np.uint16)
    return low.view(DTYPES[kind])


def _with_signs(read: Reader, kind: str, negative: bool, absolute: bool) -> Reader:
    if kind[0] != "f" and kind != "u32":
        raise UnknownInstruction(f"a sign before an operand of type {kind}")
    bits = int(kind[1:])
    unsigned = DTYPES[f"u{bits}"]
    sign = unsigned(1 << (bits - 1))

    def signed(waves: Waves) -> Array:
        value = read(waves).view(unsigned)
        if absolute:
            value = value & ~sign
        if negative:
            value = value ^ sign
        return value.view(DTYPES[kind])

    return signed


def mask_reader(text: str) -> Reader:
    """Return how an instruction reads a mask with one bit for each lane."""
    where = place(text)
    if where is None:
        value = constant(text, "u64")
        words = np.array([[value & 0xFFFFFFFF], [value >> 32]], np.uint32)
        return lambda waves: to_lanes(np.broadcast_to(words, (2, waves.count)), waves.lanes)
    first, keys = where[1], registers(text)

    def mask(waves: Waves) -> Array:
        waves.use(*keys)
        return to_lanes(waves.scalars[first : first + 2], waves.lanes)

    return mask


def scalar_reader(text: str, kind: str) -> Reader:
    """Return how a scalar instruction reads an operand: an array over waves."""
    if text == "scc":
        return lambda waves: waves.scc.astype(np.uint32)
    text, negative, absolute = _signs(text)
    where = place(text)
    if where is None:
        fixed = _fixed(text, kind)
        return lambda waves: fixed
    if where[0] != "s" or (kind[1:] == "64" and where[2] != 2):
        raise UnknownInstruction(f"{text} is no scalar operand of type {kind}")
    by_lane = _file_reader(where, kind)
    read: Reader = lambda waves: by_lane(waves)[:, 0]  # noqa: E731
    return _with_signs(read, kind, negative, absolute) if negative or absolute else read


def vector_writer(text: str, kind: str, keep_high: bool = False) -> Writer:
    """Return how a vector instruction writes its result into the active lanes.

    Args:
        text: The operand.
        kind: Its type.
        keep_high: Whether a result of 16 bits leaves the upper half of the register as it was.
    """
    if kind == "mask":
        return mask_writer(text)
    bits = int(kind[1:])
    first = register(text, "v", 2 if bits == 64 else 1)

    def write(waves: Waves, value: Array) -> None:
        put(waves, first, value, bits, keep_high=keep_high)

    return write


def put(waves: Waves, first: int, value: Array, bits: int, where: Array | None = None, keep_high: bool = False) -> None:
    """Write a result of 16, 32 or 64 bits into the active lanes, or into those of them that `where` chooses."""
    words: tuple[Array, ...]
    if bits == 64:
        words = _words(value.view(np.uint64))
    elif keep_high and bits == 16:
        words = (value.view(np.uint16) | (waves.vectors[first] & np.uint32(0xFFFF0000)),)
    else:
        words = (value.view(f"u{bits // 8}"),)
    for part, word in enumerate(words):
        waves.use(("v", first + part))
        register = waves.vectors[first + part]
        if where is not None:
            np.copyto(register, word, where=waves.active & where)
        elif waves.every_lane:
            register[...] = word
        else:
            np.copyto(register, word, where=waves.active)


def mask_writer(text: str) -> Writer:
    """Return how an instruction writes a mask; the bits of inactive lanes become 0."""
    if text == "null":
        return lambda waves, value: None
    first = register(text, "s")

    def write(waves: Waves, value: Array) -> None:
        words = to_words(np.broadcast_to(value, waves.active.shape) & waves.active)
        write_scalars(waves, first, words[: waves.lanes // 32])

    return write


def scalar_writer(text: str, kind: str) -> Writer:
    """Return how a scalar instruction writes its result."""
    if text == "null":
        return lambda waves, value: None
    wide = kind.endswith("64")
    first = register(text, "s", 2 if wide else None)

    def write(waves: Waves, value: Array) -> None:
        words = _words(value.view(np.uint64)) if wide else (value.view(np.uint32),)
        write_scalars(waves, first, words)

    return write


def write_scalars(waves: Waves, first: int, words: Any) -> None:
    """Write registers that follow each other, and what depends on them."""
    for part, word in enumerate(words):
        waves.use(("s", first + part))
        waves.scalars[first + part] = word
    if first + len(words) > EXEC and first <= EXEC + 1:
        waves.exec_written()


def no_modifiers(given: dict[str, str], *allowed: str) -> None:
    """Refuse modifiers that nobody handles.

    Raises:
        UnknownInstruction: There are some.
    """
    if unknown := [key for key in given if key not in allowed]:
        raise UnknownInstruction(f"unknown modifiers {', '.join(unknown)}")


def whole(text: str | None) -> int:
    """Return a modifier that is a number, 0 where it is not there."""
    return int(text or "0", 0)
