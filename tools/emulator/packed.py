"""Packed instructions (VOP3P): two halves of a register at once, mixed precision, dot products.

`op_sel` chooses the half of each operand for the lower result (`op_sel_hi` for the upper one); `neg_lo`, `neg_hi`
negate them. In the mixed instructions `op_sel_hi` says instead that an operand is half precision (RDNA3 ISA, 7.5 and
16.10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from . import floats
from .errors import UnknownInstruction
from .integers import shift_amount
from .operands import Reader, constant_or_special, no_modifiers, place, put, vector_reader
from .program import Instruction
from .rounding import bf16_to_f32, f32_to_bf16, fma_f16, fma_f32
from .waves import Array, Waves

Step = Callable[[Waves], None]
_U16: Final = np.uint32(0xFFFF)


_HALVES: Final[dict[str, tuple[str, int, Callable[..., Array]]]] = {
    "v_pk_add_f16": ("f16", 2, lambda a, b: a + b),
    "v_pk_mul_f16": ("f16", 2, lambda a, b: a * b),
    "v_pk_min_f16": ("f16", 2, floats.TABLE["v_min_f16"].compute),
    "v_pk_max_f16": ("f16", 2, floats.TABLE["v_max_f16"].compute),
    "v_pk_fma_f16": ("f16", 3, fma_f16),
    "v_pk_add_u16": ("u16", 2, lambda a, b: a + b),
    "v_pk_sub_u16": ("u16", 2, lambda a, b: a - b),
    "v_pk_add_i16": ("i16", 2, lambda a, b: a + b),
    "v_pk_sub_i16": ("i16", 2, lambda a, b: a - b),
    "v_pk_mul_lo_u16": ("u16", 2, lambda a, b: a * b),
    "v_pk_mad_u16": ("u16", 3, lambda a, b, c: a * b + c),
    "v_pk_mad_i16": ("i16", 3, lambda a, b, c: a * b + c),
    "v_pk_min_u16": ("u16", 2, np.minimum),
    "v_pk_max_u16": ("u16", 2, np.maximum),
    "v_pk_min_i16": ("i16", 2, np.minimum),
    "v_pk_max_i16": ("i16", 2, np.maximum),
    "v_pk_lshlrev_b16": ("u16", 2, lambda a, b: b << shift_amount(a, 16)),
    "v_pk_lshrrev_b16": ("u16", 2, lambda a, b: b >> shift_amount(a, 16)),
    "v_pk_ashrrev_i16": ("i16", 2, lambda a, b: b >> shift_amount(a, 16)),
}
# With the clamp bit, integers stop at their limits.
_SATURATING: Final[dict[str, Callable[..., Array]]] = {
    f"v_pk_{name}_{kind}": compute
    for kind in ("u16", "i16")
    for name, compute in (
        ("add", lambda a, b: a + b), ("sub", lambda a, b: a - b), ("mad", lambda a, b, c: a * b + c),
    )
}  # fmt: skip
_WORDS: Final[dict[str, tuple[int, Callable[..., Array]]]] = {
    "v_pk_fma_f32": (3, fma_f32),
    "v_pk_add_f32": (2, lambda a, b: a + b),
    "v_pk_mul_f32": (2, lambda a, b: a * b),
}
_ALIASES: Final = {"v_pk_min_num_f16": "v_pk_min_f16", "v_pk_max_num_f16": "v_pk_max_f16"}
# The products of a dot product: how halves are seen, and how many there are in a register.
_DOTS: Final = {
    "v_dot2_f32_f16": ("f16", 2), "v_dot2c_f32_f16": ("f16", 2), "v_dot2acc_f32_f16": ("f16", 2),
    "v_dot2_f32_bf16": ("bf16", 2), "v_dot2c_f32_bf16": ("bf16", 2),
    "v_dot4_i32_i8": ("i8", 4), "v_dot4c_i32_i8": ("i8", 4), "v_dot4_u32_u8": ("u8", 4),
}  # fmt: skip
_MIXED: Final = frozenset(("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"))


def knows(name: str) -> bool:
    """Return whether an instruction is one of these."""
    name = _ALIASES.get(name, name)
    return name in _HALVES or name in _WORDS or name in _DOTS or name in _MIXED or name == "v_pk_mov_b32"


def decode(instruction: Instruction) -> Step:
    """Return what a packed instruction does."""
    name = _ALIASES.get(instruction.name, instruction.name)
    no_modifiers(instruction.modifiers, "op_sel", "op_sel_hi", "neg_lo", "neg_hi", "clamp")
    limited = _HALVES.get(name, ("",))[0] == "f16" or name in _SATURATING or name in _MIXED
    if "clamp" in instruction.modifiers and not limited:
        raise UnknownInstruction(f"a limit on the result of {instruction.name}")
    if name in _MIXED:
        return _mixed(instruction)
    if name in _DOTS:
        return _dot(instruction, *_DOTS[name])
    if name in _HALVES:
        return _halves(instruction, *_HALVES[name])
    return _words(instruction, *_WORDS.get(name, (2, None)))


def _bits(instruction: Instruction, name: str, count: int, missing: int) -> list[int]:
    text = instruction.modifiers.get(name)
    given = [missing] * count if text is None else [int(bit) for bit in text.strip("[]").split(",")]
    return given + [missing] * (count - len(given))


def _target(instruction: Instruction, length: int) -> int:
    found = place(instruction.operands[0])
    if found is None or found[0] != "v" or found[2] != length:
        raise UnknownInstruction(f"{instruction.operands[0]} is no place for the result of {instruction.name}")
    return found[1]


def _half(read: Reader, upper: int, kind: str, negative: int) -> Reader:
    dtype = {"f16": np.float16, "u16": np.uint16, "i16": np.int16}[kind]

    def half(waves: Waves) -> Array:
        value = read(waves)
        value = value >> np.uint32(16) if upper else value & _U16
        seen: Array = value.astype(np.uint16).view(dtype)
        return -seen if negative else seen

    return half


def _register(text: str, kind: str) -> Reader:
    """Return how an operand of two halves is read; a constant is the lower half, the upper one is 0 for floats."""
    if place(text) is not None:
        return vector_reader(text, "u32")
    value = constant_or_special(text, kind if "." in text else "u32")
    fixed = np.array([[value]], np.uint32)
    return lambda waves: fixed


def _saturating(compute: Callable[..., Array], kind: str) -> Callable[..., Array]:
    limits = np.iinfo({"u16": np.uint16, "i16": np.int16}[kind])

    def saturated(*halves: Array) -> Array:
        exact = compute(*(half.astype(np.int64) for half in halves))
        result: Array = np.clip(exact, limits.min, limits.max).astype(limits.dtype)
        return result

    return saturated


def _halves(instruction: Instruction, kind: str, count: int, compute: Callable[..., Array]) -> Step:
    target = _target(instruction, 1)
    registers = [_register(text, kind) for text in instruction.operands[1:]]
    if len(registers) != count:
        raise UnknownInstruction(f"{instruction.name} with {len(registers)} operands")
    parts = []
    for select, negate, missing in (("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1)):
        chosen, signs = _bits(instruction, select, count, missing), _bits(instruction, negate, count, 0)
        parts.append([_half(*each) for each in zip(registers, chosen, [kind] * count, signs, strict=True)])
    clamped = "clamp" in instruction.modifiers
    if clamped and kind != "f16":
        compute = _saturating(_SATURATING[_ALIASES.get(instruction.name, instruction.name)], kind)

    def step(waves: Waves) -> None:
        low, high = (compute(*(read(waves) for read in part)) for part in parts)
        if clamped and kind == "f16":
            low, high = (np.where(each > 0, np.minimum(each, np.float16(1)), np.float16(0)) for each in (low, high))
        low, high = (each.view(np.uint16).astype(np.uint32) for each in (low, high))
        put(waves, target, low | (high << np.uint32(16)), 32)

    return step


def _words(instruction: Instruction, count: int, compute: Callable[..., Array] | None) -> Step:
    """Packed 32-bit operations of CDNA: `op_sel` chooses registers of a pair instead of halves of a register."""
    target = _target(instruction, 2)
    sources = instruction.operands[1:]
    select = _bits(instruction, "op_sel", count, 0), _bits(instruction, "op_sel_hi", count, 1)
    signs = _bits(instruction, "neg_lo", count, 0), _bits(instruction, "neg_hi", count, 0)
    if compute is None:  # v_pk_mov_b32: the lower result from the first operand, the upper one from the second
        moved = [_word(text, bit, 0) for text, bit in zip(sources, select[0], strict=True)]
        parts = [[moved[0]], [moved[1]]]
    else:
        parts = [
            [_word(text, *each) for text, *each in zip(sources, chosen, negative, strict=True)]
            for chosen, negative in zip(select, signs, strict=True)
        ]

    def step(waves: Waves) -> None:
        values = [[read(waves) for read in part] for part in parts]
        results = [each[0] if compute is None else compute(*each) for each in values]
        for offset, result in enumerate(results):
            put(waves, target + offset, np.array(result), 32)

    return step


def _word(text: str, upper: int, negative: int) -> Reader:
    found = place(text)
    if found is not None and found[2] == 2:
        prefix = "a" if found[1] >= 256 and found[0] == "v" else found[0]
        text = f"{prefix}{found[1] % 256 + upper if found[0] == 'v' else found[1] + upper}"
        if found[0] == "s" and found[1] >= 106:
            text = {106: "vcc_lo", 107: "vcc_hi", 126: "exec_lo", 127: "exec_hi"}[found[1] + upper]
    return vector_reader(("-" if negative else "") + text, "f32")


def _mixed(instruction: Instruction) -> Step:
    target = _target(instruction, 1)
    is_half, upper = _bits(instruction, "op_sel_hi", 3, 0), _bits(instruction, "op_sel", 3, 0)
    signs, absolute = _bits(instruction, "neg_lo", 3, 0), _bits(instruction, "neg_hi", 3, 0)
    if any(absolute):
        raise UnknownInstruction(f"neg_hi of {instruction.name}")
    readers = [
        _mixed_source(text, *each) for text, *each in zip(instruction.operands[1:], is_half, upper, signs, strict=True)
    ]
    name, clamped = instruction.name, "clamp" in instruction.modifiers

    def step(waves: Waves) -> None:
        result = fma_f32(*(read(waves) for read in readers))
        if clamped:
            result = np.where(result > 0, np.minimum(result, np.float32(1)), np.float32(0))
        if name == "v_fma_mix_f32":
            put(waves, target, result, 32)
            return
        half, old = result.astype(np.float16).view(np.uint16).astype(np.uint32), waves.vectors[target]
        if name == "v_fma_mixlo_f16":
            put(waves, target, half | (old & ~_U16), 32)
        else:
            put(waves, target, (half << np.uint32(16)) | (old & _U16), 32)

    return step


def _mixed_source(text: str, is_half: int, upper: int, negative: int) -> Reader:
    sign = text.startswith("-") and place(text.lstrip("-|").rstrip("|")) is not None
    inner = text[1:] if sign else text
    absolute = inner.startswith("|")
    inner = inner.strip("|")
    read = _half(_register(inner, "f16"), upper, "f16", 0) if is_half else vector_reader(inner, "f32")

    def value(waves: Waves) -> Array:
        seen: Array = read(waves).astype(np.float32)
        if absolute:
            seen = np.abs(seen)
        return -seen if bool(negative) != sign else seen

    return value


def _dot(instruction: Instruction, kind: str, count: int) -> Step:
    """Dot products: exact products, one rounding at the end. The documents leave the order of the sum open."""
    target = _target(instruction, 1)
    texts = list(instruction.operands)
    if len(texts) == 3:
        texts.append(texts[0])  # the forms that add to their result
    if any(name in instruction.modifiers for name in ("op_sel", "op_sel_hi", "neg_lo", "neg_hi", "clamp")):
        raise UnknownInstruction(f"{instruction.name} with modifiers")
    left, right = (vector_reader(text, "u32") for text in texts[1:3])
    floating = kind in ("f16", "bf16")
    addend = vector_reader(texts[3], "f32" if floating else "u32")
    width = 32 // count

    def parts(value: Array) -> list[Any]:
        ones = np.uint32((1 << width) - 1)
        raw = [((value >> np.uint32(width * place)) & ones) for place in range(count)]
        if kind == "bf16":
            return [bf16_to_f32(each).astype(np.float64) for each in raw]
        if kind == "f16":
            return [each.astype(np.uint16).view(np.float16).astype(np.float64) for each in raw]
        dtype = np.int8 if kind == "i8" else np.uint8
        return [each.astype(np.uint8).view(dtype).astype(np.int64) for each in raw]

    def step(waves: Waves) -> None:
        pairs = zip(parts(left(waves)), parts(right(waves)), strict=True)
        total: Any = sum((a * b for a, b in pairs), start=addend(waves).astype(np.float64 if floating else np.int64))
        result = total.astype(np.float32) if floating else (total & 0xFFFFFFFF).astype(np.uint32)
        put(waves, target, result, 32)

    return step


# For matrix instructions, which see halves the same way.
def as_halves(registers: Array, kind: str) -> Array:
    """Return registers x waves x lanes as fp32, with the halves of each register one after the other."""
    low, high = registers & _U16, registers >> np.uint32(16)
    both = np.stack([low, high], axis=1).reshape(-1, *registers.shape[1:])
    if kind == "bf16":
        return bf16_to_f32(both)
    return both.astype(np.uint16).view(np.float16).astype(np.float32)


def from_f32(values: Array, kind: str) -> Array:
    """Return fp32 rounded to 16 bits, as 32-bit words."""
    half = f32_to_bf16(values) if kind == "bf16" else values.astype(np.float16).view(np.uint16)
    return half.astype(np.uint32)
