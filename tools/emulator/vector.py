"""Vector instructions: the tables put together with operands, modifiers, parts of registers and other lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from . import floats, integers, lanes
from .errors import UnknownInstruction
from .integers import Operation
from .operands import Reader, mask_reader, mask_writer, place, put, vector_reader, vector_writer
from .program import Instruction, Program
from .waves import Array, Waves

Step = Callable[[Waves], None]

_TABLE: Final = {**integers.TABLE, **floats.TABLE}
_ALIASES: Final = {**integers.ALIASES, **floats.ALIASES}
# Results of 16 bits that left the upper half of the register as it was before gfx10 made that the rule
# (LLVM, GCNSubtarget::zeroesHigh16BitsOfDest).
_KEEP_HIGH: Final = frozenset(("v_mad_u16", "v_mad_i16", "v_fma_f16", "v_div_fixup_f16"))
# Factors on a floating-point result.
_FACTORS: Final = {("mul", "2"): 2.0, ("mul", "4"): 4.0, ("div", "2"): 0.5}


def decode(instruction: Instruction, program: Program) -> Step:
    """Return what an instruction of the vector unit does.

    Raises:
        UnknownInstruction: It is in none of the tables, or has a modifier that nobody handles.
    """
    name = _ALIASES.get(instruction.name, instruction.name)
    if name in lanes.STEPS:
        _only(instruction, "op_sel")
        return lanes.STEPS[name](instruction)
    if name.startswith("v_cmp"):
        return _comparison(instruction, program)
    if name == "v_swap_b32":
        return _swap(instruction)
    if name == "v_nop":
        return lambda waves: None
    if name not in _TABLE:
        raise UnknownInstruction(f"unknown instruction {instruction.name}")
    return _ordinary(_TABLE[name], name, instruction, program)


def _ordinary(operation: Operation, name: str, instruction: Instruction, program: Program) -> Step:
    results, sources = _split(operation, instruction)
    modifiers = instruction.modifiers
    kind = operation.results[0]
    keep_high = kind[1:] == "16" and (program.generation >= 10 or name in _KEEP_HIGH)
    is_sdwa, is_dpp = instruction.encoding == "sdwa", instruction.encoding.endswith("dpp")
    op_sel = [int(bit) for bit in modifiers.get("op_sel", "").strip("[]").split(",") if bit]
    _only(instruction, *(lanes.SDWA if is_sdwa else lanes.DPP if is_dpp else ()), "clamp", "mul", "div", "op_sel")
    readers = [
        _source(text, each, position, instruction, is_sdwa, op_sel)
        for position, (text, each) in enumerate(zip(sources, operation.operands, strict=True))
    ]
    compute = _computation(operation, name, modifiers, kind)
    others = [vector_writer(text, each) for text, each in zip(results[1:], operation.results[1:], strict=True)]
    target = place(results[0])
    if target is None or target[0] != "v":
        raise UnknownInstruction(f"{results[0]} is no vector register to write")
    first, bits = target[1], int(kind[1:])
    fetch, written = lanes.dpp(modifiers, program.wave_size) if is_dpp else (None, None)
    upper = len(op_sel) > len(readers) and op_sel[len(readers)]
    write = vector_writer(results[0], kind, keep_high)

    def step(waves: Waves) -> None:
        values = [read(waves) for read in readers]
        if fetch is not None:
            values[0] = fetch(waves, values[0])
        result = compute(*values)
        if others:
            result, *rest = result
            for writer, value in zip(others, rest, strict=True):
                writer(waves, value)
        if is_sdwa:
            lanes.sdwa_write(waves, first, result, modifiers)
        elif written is not None:
            put(waves, first, np.broadcast_to(result, waves.active.shape), bits, written(waves), keep_high)
        elif upper:
            half = result.view(np.uint16).astype(np.uint32) << np.uint32(16)
            put(waves, first, half | (waves.vectors[first] & np.uint32(0xFFFF)), 32)
        else:
            write(waves, result)

    return step


def _split(operation: Operation, instruction: Instruction) -> tuple[list[str], list[str]]:
    """Return the operands that are written and those that are read, with what the text leaves out."""
    given = list(instruction.operands)
    results, sources = given[: len(operation.results)], given[len(operation.results) :]
    wanted = operation.operands
    if wanted[-1:] == ("result",):
        sources.append(results[0])
    elif wanted[-1:] == ("vcc",) or (wanted[-1:] == ("mask",) and len(sources) == len(wanted) - 1):
        sources.append("vcc")
    if len(sources) != len(wanted):
        raise UnknownInstruction(f"{instruction.name} with {len(given)} operands")
    return results, sources


def _source(text: str, kind: str, position: int, instruction: Instruction, is_sdwa: bool, op_sel: list[int]) -> Reader:
    if kind in ("mask", "vcc"):
        return mask_reader(text)
    if kind == "result":
        kind = _TABLE[_ALIASES.get(instruction.name, instruction.name)].results[0]
    if is_sdwa:
        return lanes.sdwa_reader(text, kind, instruction.modifiers.get(f"src{position}_sel", "DWORD"))
    if position < len(op_sel) and op_sel[position]:
        return _upper_half(text, kind)
    return vector_reader(text, kind)


def _upper_half(text: str, kind: str) -> Reader:
    if kind[1:] != "16":
        raise UnknownInstruction(f"op_sel for an operand of type {kind}")
    negative, inner = text.startswith("-"), text.lstrip("-")
    read = vector_reader(inner, "u32")
    dtype = {"f16": np.float16, "u16": np.uint16, "i16": np.int16}[kind]

    def half(waves: Waves) -> Array:
        value: Array = (read(waves) >> np.uint32(16)).astype(np.uint16).view(dtype)
        return -value if negative else value

    return half


def _computation(operation: Operation, name: str, modifiers: dict[str, str], kind: str) -> Callable[..., Any]:
    """Return what is computed, with the factor and the limits that modifiers put on it."""
    factor = next((value for key, value in _FACTORS.items() if modifiers.get(key[0]) == key[1]), None)
    clamped = "clamp" in modifiers
    if not clamped and factor is None:
        return operation.compute
    if kind[0] != "f":
        if name not in integers.SATURATING or factor is not None:
            raise UnknownInstruction(f"a limit on the result of {name}")
        return integers.SATURATING[name]

    def compute(*values: Array) -> Array:
        result: Array = operation.compute(*values)
        if factor is not None:
            result = result * result.dtype.type(factor)
        if clamped:
            zero, one = result.dtype.type(0), result.dtype.type(1)
            result = np.where(result > 0, np.minimum(result, one), zero)  # NaN becomes 0
        return result

    return compute


def _comparison(instruction: Instruction, program: Program) -> Step:
    exec_too = instruction.name.startswith("v_cmpx")
    name = instruction.name.replace("v_cmpx", "v_cmp")
    if name not in floats.COMPARISONS:
        raise UnknownInstruction(f"unknown instruction {instruction.name}")
    operation = floats.COMPARISONS[name]
    is_sdwa = instruction.encoding == "sdwa"
    is_dpp = instruction.encoding.endswith("dpp")
    _only(instruction, *(lanes.SDWA if is_sdwa else lanes.DPP if is_dpp else ()))
    *target, left, right = instruction.operands
    readers = [
        _source(text, kind, position, instruction, is_sdwa, [])
        for position, (text, kind) in enumerate(zip((left, right), operation.operands, strict=True))
    ]
    fetch = lanes.dpp(instruction.modifiers, program.wave_size)[0] if is_dpp else None
    # Before gfx10 a comparison that writes `exec` writes its other result too.
    write = mask_writer(target[0]) if target and target[0] not in ("exec", "exec_lo") else None

    def step(waves: Waves) -> None:
        values = [read(waves) for read in readers]
        if fetch is not None:
            values[0] = fetch(waves, values[0])
        result = np.broadcast_to(operation.compute(*values), waves.active.shape)
        if write is not None:
            write(waves, result)
        if exec_too:
            waves.set_exec(result & waves.active)

    return step


def _swap(instruction: Instruction) -> Step:
    first, second = (place(text) for text in instruction.operands)
    assert first is not None
    assert second is not None
    readers = [vector_reader(text, "u32") for text in instruction.operands]

    def step(waves: Waves) -> None:
        left, right = (read(waves).copy() for read in readers)
        put(waves, first[1], right, 32)
        put(waves, second[1], left, 32)

    return step


def decode_pair(instruction: Instruction, program: Program) -> Step:
    """Return what the two halves of a VOPD instruction do: both read before either writes (RDNA3 ISA, 7.6).

    No half may read what the other writes in the wrong order, so that the second, run on the registers as they were,
    and the first give what the hardware does.
    """
    first, second = (decode(half, program) for half in instruction.pair)
    target = place(instruction.pair[0].operands[0])
    assert target is not None
    place_ = target[1]

    def step(waves: Waves) -> None:
        before = waves.vectors[place_].copy()
        first(waves)
        after = waves.vectors[place_].copy()
        waves.vectors[place_] = before
        second(waves)
        waves.vectors[place_] = after

    return step


def _only(instruction: Instruction, *allowed: str) -> None:
    if unknown := [key for key in instruction.modifiers if key not in allowed]:
        raise UnknownInstruction(f"{instruction.name} with unknown modifiers {', '.join(unknown)}")
