"""WMMA and MFMA with marked elements, so that a wrong place of any element shows.

The places are those that AMD's matrix instruction calculator prints (`layouts.py`), not the emulator's own. One thing
no result can show: an order of the terms of the sums that A and B share.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from ...tables import each_row
from .layouts import DIGESTS, LAYOUTS, Layout, Matrices
from .single import Array, Kernel, kernel, run

pytestmark = pytest.mark.once
EVERY = list(LAYOUTS)
# First registers of A, B, C and D.
A, B, C, D = 10, 30, 50, 80


def kinds(instruction: str) -> tuple[str, str]:
    """Return the types of the result and of the factors."""
    name = instruction.removesuffix("_1k")
    return name.split("_")[2], next(kind for kind in ("bf16", "f16", "f32") if name.endswith(kind))


def encoded(values: Array, kind: str) -> Array:
    """Return numbers as the bits of their type, in the lower half of a word where they have 16."""
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    bits = values.astype(np.float32).view(np.uint32)
    return bits >> np.uint32(16) if kind == "bf16" else bits


def decoded(bits: Array, kind: str) -> Array:
    if kind == "f16":
        return (bits & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16).astype(np.float64)
    return (bits << np.uint32(16) if kind == "bf16" else bits).view(np.float32).astype(np.float64)


@cache
def places(layout: Layout) -> Array:
    """Return row, column, register, lane and lowest bit of every element, as columns."""
    return np.array(list(layout.places())).T


def registers(matrices: Array, layout: Layout, kind: str, lanes: int) -> Array:
    """Return registers x lanes of many matrices."""
    row, column, register, lane, low = places(layout)
    held = np.zeros((len(matrices), layout.registers, lanes), np.uint32)
    np.bitwise_or.at(
        held, (slice(None), register, lane), encoded(matrices[:, row, column], kind) << low.astype(np.uint32)
    )
    return held


def read(held: Array, layout: Layout, kind: str) -> Array:
    """Return matrices from registers x lanes."""
    row, column, register, lane, low = places(layout)
    found = np.zeros((len(held), layout.rows, layout.columns))
    found[:, row, column] = decoded(held[:, register, lane] >> low.astype(np.uint32), kind)
    return found


@cache
def compiled(target: str, instruction: str) -> Kernel:
    layouts = LAYOUTS[target, instruction]
    operands = (D, layouts.d), (A, layouts.a), (B, layouts.b), (C, layouts.d)
    named = [[f"v{first + each}" for each in range(layout.registers)] for first, layout in operands]
    ranges = ", ".join(
        f"v{first}" if layout.registers == 1 else f"v[{first}:{first + layout.registers - 1}]"
        for first, layout in operands
    )
    given = {name: () for names in named[1:] for name in names}
    return kernel(target, f"{instruction} {ranges}", given, named[0])


def product(target: str, instruction: str, a: Array, b: Array, c: Array) -> Array:
    """Run one group for each triple of matrices and return the results."""
    layouts, made = LAYOUTS[target, instruction], compiled(target, instruction)
    result, factors = kinds(instruction)
    parts = ((a, layouts.a, factors), (b, layouts.b, factors), (c, layouts.d, result))
    given = np.concatenate([registers(matrix, layout, kind, made.wave) for matrix, layout, kind in parts], axis=1)
    return read(run(made, given, len(a)), layouts.d, result)


def numbered(layout: Layout) -> Array:
    """Return a matrix whose elements differ, each exact in every type where there are 256 of them."""
    return np.arange(1.0, 1 + layout.rows * layout.columns).reshape(layout.rows, layout.columns)


def ones(layout: Layout) -> Array:
    """Return a matrix for each element, with a single 1 there."""
    count = layout.rows * layout.columns
    return np.eye(count).reshape(count, layout.rows, layout.columns)


def repeated(matrix: Array, count: int) -> Array:
    return np.broadcast_to(matrix, (count, *matrix.shape))


def of(target: str, instruction: str) -> tuple[Matrices, Array]:
    layouts = LAYOUTS[target, instruction]
    return layouts, np.zeros((layouts.d.rows, layouts.d.columns))


@each_row(("target", "instruction"), EVERY)
def test_a_single_one_in_a_picks_a_row_of_b(target: str, instruction: str) -> None:
    layouts, nothing = of(target, instruction)
    a, b = ones(layouts.a), numbered(layouts.b)
    found = product(target, instruction, a, repeated(b, len(a)), repeated(nothing, len(a)))
    np.testing.assert_array_equal(found, a @ b)


@each_row(("target", "instruction"), EVERY)
def test_a_single_one_in_b_picks_a_column_of_a(target: str, instruction: str) -> None:
    layouts, nothing = of(target, instruction)
    a, b = numbered(layouts.a), ones(layouts.b)
    found = product(target, instruction, repeated(a, len(b)), b, repeated(nothing, len(b)))
    np.testing.assert_array_equal(found, a @ b)


@each_row(("target", "instruction"), EVERY)
def test_what_is_added_comes_out_at_its_place(target: str, instruction: str) -> None:
    layouts, _ = of(target, instruction)
    c = numbered(layouts.d)[None]
    a, b = np.zeros((1, layouts.a.rows, layouts.a.columns)), np.zeros((1, layouts.b.rows, layouts.b.columns))
    np.testing.assert_array_equal(product(target, instruction, a, b, c), c)


@each_row(("target", "instruction"), EVERY)
def test_a_whole_product_of_small_numbers_is_exact(target: str, instruction: str) -> None:
    layouts, _ = of(target, instruction)
    draw = np.random.default_rng(17)
    a, b, c = (
        draw.integers(-2, 3, (4, layout.rows, layout.columns)).astype(float)
        for layout in (layouts.a, layouts.b, layouts.d)
    )
    np.testing.assert_array_equal(product(target, instruction, a, b, c), a @ b + c)


@each_row(("target", "instruction"), [each for each in EVERY if "mfma" in each[1]])
def test_accumulation_registers_take_the_same_places(target: str, instruction: str) -> None:
    """As compilers write a chain: the first product is added to a constant, the next one to the registers."""
    layouts, _ = of(target, instruction)
    last = layouts.d.registers - 1
    factors = [f"v{first}" if layout.registers == 1 else f"v[{first}:{first + 1}]" for first, layout in
               ((A, layouts.a), (B, layouts.b))]  # fmt: skip
    body = [f"{instruction} a[0:{last}], {factors[0]}, {factors[1]}, 1.0"]
    body += [f"{instruction} a[0:{last}], {factors[0]}, {factors[1]}, a[0:{last}]", "s_nop 15"]
    stored = [f"v{D + each}" for each in range(layouts.d.registers)]
    body += [f"v_accvgpr_read_b32 {name}, a{each}" for each, name in enumerate(stored)]
    named = [
        f"v{first + each}" for first, layout in ((A, layouts.a), (B, layouts.b)) for each in range(layout.registers)
    ]
    made = kernel(target, "\n".join(body), {name: () for name in named}, stored)
    kind = kinds(instruction)[1]
    a, b = numbered(layouts.a)[None], np.random.default_rng(5).integers(-1, 2, (1, layouts.b.rows, layouts.b.columns))
    given = [registers(matrix, layout, kind, 64) for matrix, layout in ((a, layouts.a), (b, layouts.b))]
    found = read(run(made, np.concatenate(given, axis=1), 1), layouts.d, "f32")
    np.testing.assert_array_equal(found, 2 * (a @ b) + 1)


@each_row(("target", "instruction"), EVERY)
def test_the_words_of_a_layout_are_the_calculator_s_lines(target: str, instruction: str) -> None:
    layouts = LAYOUTS[target, instruction]
    assert layouts.digest() == DIGESTS[layouts]


# Lines of the calculator, spelled out: instruction, matrix, row, column, register, lanes, lowest bit.
SPELLED_OUT = [
    ("gfx942", "v_mfma_f32_32x32x8_f16", "D", (6, 17), 2, [49], 0),
    ("gfx942", "v_mfma_f32_32x32x8_f16", "D", (9, 5), 5, [5], 0),
    ("gfx942", "v_mfma_f32_32x32x8_f16", "D", (31, 30), 15, [62], 0),
    ("gfx942", "v_mfma_f32_32x32x8_f16", "A", (9, 5), 0, [41], 16),
    ("gfx942", "v_mfma_f32_16x16x4_f32", "A", (9, 3), 0, [57], 0),
    ("gfx942", "v_mfma_f32_16x16x4_f32", "D", (9, 5), 1, [37], 0),
    ("gfx1100", "v_wmma_f32_16x16x16_f16", "A", (9, 5), 2, [9, 25], 16),
    ("gfx1100", "v_wmma_f32_16x16x16_f16", "B", (9, 5), 4, [5, 21], 16),
    ("gfx1100", "v_wmma_f32_16x16x16_f16", "D", (9, 5), 4, [21], 0),
    ("gfx1201", "v_wmma_f32_16x16x16_f16", "A", (9, 5), 0, [25], 16),
    ("gfx1201", "v_wmma_f32_16x16x16_f16", "B", (9, 5), 2, [5], 16),
    ("gfx1201", "v_wmma_f32_16x16x16_f16", "D", (9, 5), 1, [21], 0),
    ("gfx1201", "v_wmma_f16_16x16x16_f16", "D", (9, 5), 0, [21], 16),
]


@each_row(("target", "instruction", "matrix", "element", "register", "lanes", "low"), SPELLED_OUT)
def test_some_elements_are_where_they_are_said_to_be(
    target: str, instruction: str, matrix: str, element: tuple[int, int], register: int, lanes: list[int], low: int
) -> None:
    layout = getattr(LAYOUTS[target, instruction], matrix.lower())
    found = [place[2:] for place in layout.places() if place[:2] == element]
    assert found == [(register, lane, low) for lane in lanes]
