"""Matrix instructions: WMMA of gfx11 and gfx12, MFMA of CDNA, with results in fp32.

D = A B + C. Which lane and register holds which element: "Matrix Instruction Layouts" of AMD's RDNA3 ISA (7.9), RDNA4
ISA (7.12) and CDNA3 ISA (7.1.4) documents; the tests compare every element with what AMD's matrix instruction
calculator prints. Sums are exact and rounded once: the documents leave the order of the hardware's own open.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from .errors import UnknownInstruction
from .operands import constant, no_modifiers, place, register
from .program import Instruction, Program
from .rounding import bf16_to_f32
from .waves import Array, Waves

Step = Callable[[Waves], None]
_NAME: Final = re.compile(r"v_(wmma|mfma)_f32_(\d+)x(\d+)x(\d+)_?(f32|f16|bf16)(_1k)?")
# The smallest normal numbers.
_SMALLEST: Final = {"f16": 2.0**-14, "bf16": 2.0**-126}


class Layout(NamedTuple):
    """Where the elements of a matrix instruction lie.

    Attributes:
        a: Row and column of A for each element of an operand's register and lane: two arrays, elements x lanes.
        b: Likewise of B.
        d: Likewise of C and D.
        size: Rows, columns, and terms of each sum.
    """

    a: tuple[Array, Array]
    b: tuple[Array, Array]
    d: tuple[Array, Array]
    size: tuple[int, int, int]


def _wmma(generation: int, m: int, n: int, k: int) -> Layout:
    if (m, n, k) != (16, 16, 16) or generation < 11:
        raise UnknownInstruction(f"no layout of a WMMA instruction of {m}x{n}x{k}")
    lane = np.arange(32)
    if generation == 11:  # both halves of the wave hold the same A and B
        element = np.arange(16)[:, None]
        a = np.broadcast_arrays(lane % 16, element)
        d = np.broadcast_arrays(2 * np.arange(8)[:, None] + lane // 16, lane % 16)
    else:
        element = np.arange(8)[:, None]
        a = np.broadcast_arrays(lane % 16, 8 * (element // 4) + 4 * (lane // 16) + element % 4)
        d = np.broadcast_arrays(8 * (lane // 16) + np.arange(8)[:, None], lane % 16)
    return Layout((a[0], a[1]), (a[1], a[0]), (d[0], d[1]), (m, n, k))


def _mfma(m: int, n: int, k: int) -> Layout:
    if m != n or m not in (16, 32) or k * m < 64:
        raise UnknownInstruction(f"no layout of an MFMA instruction of {m}x{n}x{k}")
    lane, each = np.arange(64), k * m // 64  # elements of A in a lane
    a = np.broadcast_arrays(lane % m, each * (lane // m) + np.arange(each)[:, None])
    register = np.arange(m * n // 64)[:, None]
    d = np.broadcast_arrays(256 // m * (register // 4) + 4 * (lane // m) + register % 4, lane % n)
    return Layout((a[0], a[1]), (a[1], a[0]), (d[0], d[1]), (m, n, k))


def knows(name: str) -> bool:
    """Return whether an instruction is one of these."""
    return name.startswith(("v_wmma", "v_mfma"))


def decode(instruction: Instruction, program: Program) -> Step:
    """Return what a matrix instruction does.

    Raises:
        UnknownInstruction: One with another shape, data type or modifier.
    """
    match = _NAME.fullmatch(instruction.name)
    if match is None:
        raise UnknownInstruction(f"unknown instruction {instruction.name}")
    no_modifiers(instruction.modifiers)
    is_mfma, size = match[1] == "mfma", tuple(int(match[part]) for part in (2, 3, 4))
    if program.wave_size != (64 if is_mfma else 32):
        raise UnknownInstruction(f"{instruction.name} in waves of {program.wave_size}")
    where = _mfma(*size) if is_mfma else _wmma(program.generation, *size)
    read_a, read_b = (
        _matrix(text, match[5], at, program.target)
        for text, at in zip(instruction.operands[1:3], (where.a, where.b), strict=True)
    )
    read_c = _addend(instruction.operands[3], where)
    length = len(where.d[0])
    first = register(instruction.operands[0], "v", length)

    def step(waves: Waves) -> None:
        # Numbers of half precision and their products are exact in fp64; so is each product of fp32.
        product = read_a(waves, where.size[0], where.size[2]) @ read_b(waves, where.size[2], where.size[1])
        matrix = (product + read_c(waves)).astype(np.float32)
        # Matrix instructions write every lane, whatever `exec` says.
        values = matrix[:, where.d[0], where.d[1]].transpose(1, 0, 2)
        _use(waves, first, length)[...] = np.ascontiguousarray(values).view(np.uint32)

    return step


def _use(waves: Waves, first: int, length: int) -> Array:
    waves.use(*(("v", register) for register in range(first, first + length)))
    return waves.vectors[first : first + length]


def _matrix(text: str, kind: str, at: tuple[Array, Array], target: str) -> Callable[[Waves, int, int], Array]:
    # Matrix units of MI200 take denormals of half precision for zero (MIOpen, "MI200 MFMA behavior specifics").
    smallest = _SMALLEST[kind] if target == "gfx90a" and kind != "f32" else 0.0
    length = len(at[0]) if kind == "f32" else len(at[0]) // 2
    first = register(text, "v", length)

    def read(waves: Waves, rows: int, columns: int) -> Array:
        registers = _use(waves, first, length)
        values = registers.view(np.float32) if kind == "f32" else _as_halves(registers, kind)
        if smallest:
            values = np.where(np.abs(values) < smallest, np.float32(0), values)
        matrix = np.zeros((waves.count, rows, columns))
        matrix[:, at[0], at[1]] = values.transpose(1, 0, 2)
        return matrix

    return read


def _as_halves(registers: Array, kind: str) -> Array:
    """Return registers x waves x lanes as fp32, with the halves of each register one after the other."""
    both = np.stack([registers & np.uint32(0xFFFF), registers >> np.uint32(16)], axis=1)
    both = both.reshape(-1, *registers.shape[1:])
    return bf16_to_f32(both) if kind == "bf16" else both.astype(np.uint16).view(np.float16).astype(np.float32)


def _addend(text: str, where: Layout) -> Callable[[Waves], Array]:
    m, n, _ = where.size
    if place(text) is None:
        bits = np.array([constant(text, "f32")], np.uint32)
        fixed = np.full((1, m, n), bits.view(np.float32)[0], np.float64)
        return lambda waves: fixed
    length = len(where.d[0])
    first = register(text, "v", length)

    def read(waves: Waves) -> Array:
        matrix = np.zeros((waves.count, m, n))
        matrix[:, where.d[0], where.d[1]] = _use(waves, first, length).view(np.float32).transpose(1, 0, 2)
        return matrix

    return read
