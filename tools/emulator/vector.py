"""Vector instructions: the tables put together with operands, modifiers, parts of registers and other lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from . import floats, integers, lanes
from .errors import UnknownInstruction
from .integers import Operation
from .operands import DTYPES, Reader, mask_reader, mask_writer, no_modifiers, place, put, vector_reader, vector_writer
from .program import Instruction, Program
from .waves import Array, Waves

Step = Callable[[Waves], None]

TABLE: Final = {**integers.TABLE, **floats.TABLE}
ALIASES: Final = {**integers.ALIASES, **floats.ALIASES}


def decode(instruction: Instruction, program: Program) -> Step:
    """Return what an instruction of the vector unit does.

    Raises:
        UnknownInstruction: It is in none of the tables, or has a modifier that nobody handles.
    """
    name = ALIASES.get(instruction.name, instruction.name)
    if name in lanes.STEPS:
        no_modifiers(instruction.modifiers, "op_sel")
        return lanes.STEPS[name](instruction)
    if name.startswith("v_cmp"):
        return _comparison(instruction, program)
    if name == "v_nop":
        return lambda waves: None
    if name not in TABLE:
        raise UnknownInstruction(f"unknown instruction {instruction.name}")
    return _ordinary(TABLE[name], instruction, program)


def _ordinary(operation: Operation, instruction: Instruction, program: Program) -> Step:
    results, sources = _split(operation, instruction)
    kind, modifiers = operation.results[0], instruction.modifiers
    readers, fetch, written = _readers(sources, operation, instruction, program, "clamp")
    compute = _saturating(operation, instruction.name) if "clamp" in modifiers else operation.compute
    others = [vector_writer(text, each) for text, each in zip(results[1:], operation.results[1:], strict=True)]
    # Results of 16 bits leave the upper half of the register as it was from gfx10 on.
    write = vector_writer(results[0], kind, keep_high=kind[1:] == "16" and program.generation >= 10)
    target = place(results[0])
    if modifiers.get("dst_sel", "DWORD") != "DWORD":
        raise UnknownInstruction(f"dst_sel:{modifiers['dst_sel']}")

    def step(waves: Waves) -> None:
        values = [read(waves) for read in readers]
        if fetch is not None:
            values[0] = fetch(waves, values[0])
        result = compute(*values)
        if others:
            result, *rest = result
            for writer, value in zip(others, rest, strict=True):
                writer(waves, value)
        if written is not None and target is not None:
            put(waves, target[1], np.broadcast_to(result, waves.active.shape), int(kind[1:]), written(waves))
        else:
            write(waves, result)

    return step


def _split(operation: Operation, instruction: Instruction) -> tuple[list[str], list[str]]:
    """Return the operands that are written and those that are read, with what the text leaves out."""
    given = list(instruction.operands)
    results, sources = given[: len(operation.results)], given[len(operation.results) :]
    last = operation.operands[-1]
    if last == "result":
        sources.append(results[0])
    elif last in ("vcc", "mask") and len(sources) == len(operation.operands) - 1:
        sources.append("vcc")
    if len(sources) != len(operation.operands):
        raise UnknownInstruction(f"{instruction.name} with {len(given)} operands")
    return results, sources


def _readers(
    sources: list[str], operation: Operation, instruction: Instruction, program: Program, *allowed: str
) -> tuple[list[Reader], Callable[[Waves, Array], Array] | None, Callable[[Waves], Array] | None]:
    """Return how operands are read, and with DPP how the first one is fetched and which lanes are written."""
    is_sdwa, is_dpp = instruction.encoding == "sdwa", instruction.encoding.endswith("dpp")
    modifiers = instruction.modifiers
    no_modifiers(modifiers, *(lanes.SDWA if is_sdwa else lanes.DPP if is_dpp else ()), *allowed)
    readers = []
    for position, (text, kind) in enumerate(zip(sources, operation.operands, strict=True)):
        if kind in ("mask", "vcc"):
            readers.append(mask_reader(text))
        elif is_sdwa:
            readers.append(lanes.sdwa_reader(text, kind, modifiers.get(f"src{position}_sel", "DWORD")))
        else:
            readers.append(vector_reader(text, operation.results[0] if kind == "result" else kind))
    fetch, written = lanes.dpp(modifiers, program.wave_size) if is_dpp else (None, None)
    return readers, fetch, written


def _saturating(operation: Operation, name: str) -> Callable[..., Any]:
    """Return what is computed where sums and differences of integers stop at their limits."""
    kind = operation.results[0]
    if kind not in ("u32", "i32") or not name.startswith(("v_add", "v_sub")):
        raise UnknownInstruction(f"a limit on the result of {name}")
    limits = np.iinfo(DTYPES[kind])

    def compute(*values: Array) -> Array:
        exact = operation.compute(*(integers.widened(value) for value in values))
        return np.clip(exact, limits.min, limits.max).astype(DTYPES[kind])

    return compute


def _comparison(instruction: Instruction, program: Program) -> Step:
    exec_too = instruction.name.startswith("v_cmpx")
    name = instruction.name.replace("v_cmpx", "v_cmp")
    if name not in floats.COMPARISONS:
        raise UnknownInstruction(f"unknown instruction {instruction.name}")
    operation = floats.COMPARISONS[name]
    *target, left, right = instruction.operands
    readers, fetch, _ = _readers([left, right], operation, instruction, program)
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


def decode_pair(instruction: Instruction, program: Program) -> Step:
    """Return what the two halves of a VOPD instruction do: both read before either writes (RDNA3 ISA, 7.6).

    No half may read what the other writes in the wrong order, so that the second, run on the registers as they were,
    and the first give what the hardware does.
    """
    first, second = (decode(half, program) for half in instruction.pair)
    target = place(instruction.pair[0].operands[0])
    assert target is not None
    register = target[1]

    def step(waves: Waves) -> None:
        before = waves.vectors[register].copy()
        first(waves)
        after = waves.vectors[register].copy()
        waves.vectors[register] = before
        second(waves)
        waves.vectors[register] = after

    return step
