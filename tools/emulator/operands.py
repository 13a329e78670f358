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
import numpy.typing as npt

from .errors import EmulationError, UnknownInstruction
from .waves import ACCUMULATORS, EXEC, FLAT_SCRATCH, M0, TTMP, VCC, XNACK, Waves, any_lane, to_lanes, to_words

Array = npt.NDArray[Any]
Reader = Callable[[Waves], Array]
Writer = Callable[[Waves, Array], None]

DTYPES: Final[dict[str, Any]] = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32,
    "u64": np.uint64, "i64": np.int64, "f64": np.float64,
    "u16": np.uint16, "i16": np.int16, "f16": np.float16,
}  # fmt: skip
_SPECIAL: Final = {
    "vcc": VCC, "vcc_lo": VCC, "vcc_hi": VCC + 1, "exec": EXEC, "exec_lo": EXEC, "exec_hi": EXEC + 1, "m0": M0,
    "flat_scratch": FLAT_SCRATCH, "flat_scratch_lo": FLAT_SCRATCH, "flat_scratch_hi": FLAT_SCRATCH + 1,
    "xnack_mask": XNACK, "xnack_mask_lo": XNACK, "xnack_mask_hi": XNACK + 1,
}  # fmt: skip
_REGISTER: Final = re.compile(r"^(v|s|a|ttmp)(?:(\d+)|\[(\d+):(\d+)\])$")
_FLOAT: Final = re.compile(r"^-?\d+\.\d+(e[-+]?\d+)?$")
# 1 / (2 pi), which is printed short.
_INVERSE_TWO_PI: Final = {"f16": 0x3118, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}
_FORMATS: Final = {"f16": "<e", "f32": "<f", "f64": "<d"}


def place(text: str) -> tuple[str, int, int] | None:
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
    found = place(text)
    return [] if found is None else [(found[0], found[1] + part) for part in range(found[2])]


def constant(text: str, kind: str) -> int:
    """Return the bits of a constant as an operand of a type sees it.

    Raises:
        UnknownInstruction: It is no constant.
    """
    seen = {"u": "f", "i": "f", "b": "f"}.get(kind[0], kind[0]) + kind[1:]
    if text == "0.15915494" or text == "0.15915494309189532":
        return _INVERSE_TWO_PI[seen]
    if _FLOAT.match(text):
        return int.from_bytes(struct.pack(_FORMATS[seen], float(text)), "little")
    try:
        value = int(text, 0)
    except ValueError:
        raise UnknownInstruction(f"cannot read the operand {text!r}") from None
    if kind == "f64" and text.startswith("0x"):
        return (value << 32) & ((1 << 64) - 1)  # a literal is the upper half
    return value & ((1 << int(kind[1:])) - 1)


def vector_reader(text: str, kind: str) -> Reader:
    """Return how a vector instruction reads an operand: waves x lanes, or what stands for it."""
    if kind == "mask":
        return mask_reader(text)
    text, negative, absolute, signed = _signs(text)
    bits = int(kind[1:])
    found = place(text)
    if found is None:
        value = np.array([[constant_or_special(text, kind)]], np.uint64)
        fixed = _seen(_words(value), kind)
        read: Reader = lambda waves: fixed  # noqa: E731
    else:
        file, first, length = found
        if bits == 64 and length != 2:
            raise UnknownInstruction(f"{text} is no 64-bit operand")
        read = _file_reader(file, first, bits == 64, kind)
    if signed:
        raise UnknownInstruction(f"sext of {text} outside of SDWA")
    return _with_signs(read, kind, negative, absolute) if negative or absolute else read


def constant_or_special(text: str, kind: str) -> int:
    """Return the bits of a constant, or of a name that always reads the same."""
    return 0 if text == "null" else constant(text, kind)


def _signs(text: str) -> tuple[str, bool, bool, bool]:
    """Return an operand without its signs, and which it had: minus, absolute value, sign extension."""
    negative = absolute = signed = False
    while True:
        if text.startswith("-") and not text[1:2].isdigit():
            text, negative = text[1:], True
        elif text.startswith("|") and text.endswith("|"):
            text, absolute = text[1:-1], True
        elif match := re.fullmatch(r"(neg|abs|sext)\((.*)\)", text):
            text = match[2]
            negative, absolute, signed = (
                negative or match[1] == "neg",
                absolute or match[1] == "abs",
                match[1] == "sext",
            )
        else:
            return text, negative, absolute, signed


def _file_reader(file: str, first: int, wide: bool, kind: str) -> Reader:
    key, next_key = (file, first), (file, first + 1)

    def read(waves: Waves) -> Array:
        if waves.pending:
            if key in waves.pending:
                waves.use(key)
            if wide and next_key in waves.pending:
                waves.use(next_key)
        if file == "v":
            low = waves.vectors[first]
            high = waves.vectors[first + 1] if wide else None
        else:
            low = waves.scalars[first][:, None]
            high = waves.scalars[first + 1][:, None] if wide else None
        return _seen((low, high), kind)

    return read


def _words(value: Array) -> tuple[Array, Array]:
    return (value & np.uint64(0xFFFFFFFF)).astype(np.uint32), (value >> np.uint64(32)).astype(np.uint32)


def _seen(words: tuple[Array, Array | None], kind: str) -> Array:
    """Return 32-bit words as a type."""
    low, high = words
    bits = int(kind[1:])
    if bits == 32:
        return low if kind == "u32" else low.view(DTYPES[kind])
    if bits == 64:
        assert high is not None
        whole = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
        return whole.view(DTYPES[kind])
    return low.astype(np.uint16).view(DTYPES[kind])


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
    found = place(text)
    if found is None:
        value = constant_or_special(text, "u64")
        words = np.array([[value & 0xFFFFFFFF], [value >> 32]], np.uint32)
        return lambda waves: to_lanes(np.broadcast_to(words, (2, waves.count)), waves.lanes)
    _, first, length = found

    def mask(waves: Waves) -> Array:
        if waves.pending:
            for register in range(first, first + length):
                if ("s", register) in waves.pending:
                    waves.use(("s", register))
        return to_lanes(waves.scalars[first : first + 2], waves.lanes)

    return mask


def scalar_reader(text: str, kind: str) -> Reader:
    """Return how a scalar instruction reads an operand: an array over waves."""
    if text == "scc":
        return lambda waves: waves.scc.astype(np.uint32)
    if text in ("vccz", "execz"):
        mask = VCC if text == "vccz" else EXEC
        return lambda waves: (~any_lane(waves, mask)).astype(np.uint32)
    text, negative, absolute, _ = _signs(text)
    found = place(text)
    if found is None:
        fixed = _seen(_words(np.array([constant_or_special(text, kind)], np.uint64)), kind)
        return lambda waves: fixed
    file, first, length = found
    wide = kind.endswith("64")
    if file != "s" or (wide and length != 2):
        raise UnknownInstruction(f"{text} is no scalar operand of type {kind}")
    keys = [("s", first + part) for part in range(2 if wide else 1)]

    def read(waves: Waves) -> Array:
        if waves.pending:
            for key in keys:
                if key in waves.pending:
                    waves.use(key)
        return _seen((waves.scalars[first], waves.scalars[first + 1] if wide else None), kind)

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
    found = place(text)
    if found is None or found[0] != "v":
        raise UnknownInstruction(f"{text} is no vector register to write")
    _, first, length = found
    bits = int(kind[1:])
    if (bits == 64) != (length == 2):
        raise UnknownInstruction(f"{text} is no place for a result of type {kind}")

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
        if waves.pending and ("v", first + part) in waves.pending:
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
    found = place(text)
    if found is None or found[0] != "s":
        raise UnknownInstruction(f"{text} is no place for a mask")
    first = found[1]

    def write(waves: Waves, value: Array) -> None:
        words = to_words(np.broadcast_to(value, waves.active.shape) & waves.active)
        write_scalars(waves, first, words[: waves.lanes // 32])

    return write


def scalar_writer(text: str, kind: str) -> Writer:
    """Return how a scalar instruction writes its result."""
    if text == "null":
        return lambda waves, value: None
    found = place(text)
    wide = kind.endswith("64")
    if found is None or found[0] != "s" or (wide and found[2] != 2):
        raise UnknownInstruction(f"{text} is no scalar register for a result of type {kind}")
    first = found[1]

    def write(waves: Waves, value: Array) -> None:
        words = _words(value.view(np.uint64)) if wide else (value.view(np.uint32),)
        write_scalars(waves, first, words)

    return write


def write_scalars(waves: Waves, first: int, words: Any) -> None:
    """Write registers that follow each other, and what depends on them."""
    for part, word in enumerate(words):
        if waves.pending and ("s", first + part) in waves.pending:
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


def whole(text: str | None, missing: int = 0) -> int:
    """Return a modifier that is a number."""
    if text is None:
        return missing
    try:
        return int(text, 0)
    except ValueError:
        raise EmulationError(f"{text!r} is no number") from None
