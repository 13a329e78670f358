"""Packed instructions (VOP3P): two numbers of fp32 at once, and multiply-adds of mixed precision.

`op_sel` chooses the register of a pair for the lower result (`op_sel_hi` for the upper one); `neg_lo`, `neg_hi` negate
it. In the mixed instructions `op_sel_hi` says instead that an operand is half precision, and `op_sel` which half of its
register (RDNA3 ISA, 7.5 and 16.10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from .errors import UnknownInstruction
from .operands import Reader, constant, no_modifiers, place, put, register, vector_reader
from .program import Instruction
from .rounding import fma_f32
from .waves import Array, Waves

Step = Callable[[Waves], None]
_U16: Final = np.uint32(0xFFFF)
_WORDS: Final[dict[str, tuple[int, Callable[..., Array] | None]]] = {
    "v_pk_fma_f32": (3, fma_f32),
    "v_pk_add_f32": (2, lambda a, b: a + b),
    "v_pk_mul_f32": (2, lambda a, b: a * b),
    "v_pk_mov_b32": (2, None),
}
_MIXED: Final = ("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")


def knows(name: str) -> bool:
    """Return whether an instruction is one of these."""
    return name in _WORDS or name in _MIXED


def decode(instruction: Instruction) -> Step:
    """Return what a packed instruction does."""
    no_modifiers(instruction.modifiers, "op_sel", "op_sel_hi", "neg_lo", "neg_hi")
    return _mixed(instruction) if instruction.name in _MIXED else _words(instruction, *_WORDS[instruction.name])


def _bits(instruction: Instruction, name: str, count: int, missing: int) -> list[int]:
    text = instruction.modifiers.get(name)
    given = [] if text is None else [int(bit) for bit in text.strip("[]").split(",")]
    return given + [missing] * (count - len(given))


def _words(instruction: Instruction, count: int, compute: Callable[..., Array] | None) -> Step:
    target = register(instruction.operands[0], "v", 2)
    sources = instruction.operands[1:]
    select = _bits(instruction, "op_sel", count, 0), _bits(instruction, "op_sel_hi", count, 1)
    signs = _bits(instruction, "neg_lo", count, 0), _bits(instruction, "neg_hi", count, 0)
    if compute is None:  # v_pk_mov_b32: the lower result from the first operand, the upper one from the second
        parts = [[_word(text, bit, 0)] for text, bit in zip(sources, select[0], strict=True)]
    else:
        parts = [
            [_word(text, *each) for text, *each in zip(sources, chosen, negative, strict=True)]
            for chosen, negative in zip(select, signs, strict=True)
        ]

    def step(waves: Waves) -> None:
        values = [[read(waves) for read in part] for part in parts]
        results = [each[0].copy() if compute is None else compute(*each) for each in values]
        for offset, result in enumerate(results):
            put(waves, target + offset, result, 32)

    return step


def _word(text: str, upper: int, negative: int) -> Reader:
    where = place(text)
    if where is not None and where[2] == 2:
        where = (where[0], where[1] + upper, 1)
    return vector_reader(("-" if negative else "") + text, "f32", where)


def _mixed(instruction: Instruction) -> Step:
    target, name = register(instruction.operands[0], "v", 1), instruction.name
    is_half, upper = _bits(instruction, "op_sel_hi", 3, 0), _bits(instruction, "op_sel", 3, 0)
    signs = _bits(instruction, "neg_lo", 3, 0)
    if any(_bits(instruction, "neg_hi", 3, 0)):
        raise UnknownInstruction(f"neg_hi of {name}")
    readers = [
        _mixed_source(text, *each) for text, *each in zip(instruction.operands[1:], is_half, upper, signs, strict=True)
    ]

    def step(waves: Waves) -> None:
        result = fma_f32(*(read(waves) for read in readers))
        if name == "v_fma_mix_f32":
            put(waves, target, result, 32)
            return
        half, old = result.astype(np.float16).view(np.uint16).astype(np.uint32), waves.vectors[target]
        is_low = name == "v_fma_mixlo_f16"
        put(waves, target, half | (old & ~_U16) if is_low else (half << np.uint32(16)) | (old & _U16), 32)

    return step


def _mixed_source(text: str, is_half: int, upper: int, negative: int) -> Reader:
    sign = text.startswith("-") and place(text.lstrip("-|").rstrip("|")) is not None
    inner = text[1:] if sign else text
    absolute, inner = inner.startswith("|"), inner.strip("|")
    read = _half(inner, upper) if is_half else vector_reader(inner, "f32")

    def value(waves: Waves) -> Array:
        seen: Array = read(waves).astype(np.float32)
        seen = np.abs(seen) if absolute else seen
        return -seen if bool(negative) != sign else seen

    return value


def _half(text: str, upper: int) -> Reader:
    """Return how an operand of half precision is read; a constant is the lower half, the upper one is 0."""
    if place(text) is None:
        fixed = np.array([[constant(text, "f16" if "." in text else "u32")]], np.uint32)
        read: Reader = lambda waves: fixed  # noqa: E731
    else:
        read = vector_reader(text, "u32")

    def half(waves: Waves) -> Array:
        value = read(waves) >> np.uint32(16) if upper else read(waves) & _U16
        return value.astype(np.uint16).view(np.float16)

    return half
