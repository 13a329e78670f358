"""WMMA and MFMA with marked elements, so that a wrong place of any element shows.

The places are those that AMD's matrix instruction calculator prints (`layouts.py`), not the emulator's own. One thing
no result can show: an order of the terms of the sums that A and B share.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from ...tables import each_row
from .layouts import DIGESTS, LAYOUTS, Layout
from .single import Array, Kernel, kernel, run

pytestmark = pytest.mark.once
EVERY = list(LAYOUTS)
# First registers of A, B, C and D.
A, B, C, D = 10, 30, 50, 80


def factor(instruction: str) -> str:
    """Return the type of A and B."""
    return next(kind for kind in ("bf16", "f16", "f32") if instruction.removesuffix("_1k").endswith(kind))


def encoded(values: Array, kind: str) -> Array:
    """Return numbers as the bits of their type, in the lower half of a word where they have 16."""
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    bits = values.astype(np.float32).view(np.uint32)
    return bits >> np.uint32(16) if kind == "bf16" else bits


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


def read(held: Array, layout: Layout) -> Array:
    """Return matrices from registers x lanes."""
    row, column, register, lane, _ = places(layout)
    matrices = np.zeros((len(held), layout.rows, layout.columns))
    matrices[:, row, column] = held[:, register, lane].view(np.float32)
    return matrices


@cache
def compiled(target: str, instruction: str) -> Kernel:
    layouts = LAYOUTS[target, instruction]
    operands = (D, layouts.d), (A, layouts.a), (B, layouts.b), (C, layouts.d)
    named = [[f"v{first + each}" for each in range(layout.registers)] for first, layout in operands]
    ranges = ", ".join(
        f"v{first}" if layout.registers == 1 else f"v[{first}:{first + layout.registers - 1}]"
        for first, layout in operands
    )
    return kernel(target, f"{instruction} {ranges}", [name for names in named[1:] for name in names], named[0])


def product(target: str, instruction: str, a: Array, b: Array, c: Array) -> Array:
    """Run one group for each triple of matrices and return the results."""
    layouts, made = LAYOUTS[target, instruction], compiled(target, instruction)
    parts = ((a, layouts.a, factor(instruction)), (b, layouts.b, factor(instruction)), (c, layouts.d, "f32"))
    given = np.concatenate([registers(matrix, layout, kind, made.wave) for matrix, layout, kind in parts], axis=1)
    return read(run(made, given, len(a)), layouts.d)


def drawn(layout: Layout, count: int) -> Array:
    """Return matrices of small whole numbers: a wrong place of any element shows, and every sum is exact."""
    shape = (count, layout.rows, layout.columns)
    return np.random.default_rng(17 + layout.rows).integers(-7, 8, shape).astype(float)


@each_row(("target", "instruction"), EVERY)
def test_every_element_is_where_the_calculator_says(target: str, instruction: str) -> None:
    layouts = LAYOUTS[target, instruction]
    a, b, c = (drawn(layout, 4) for layout in (layouts.a, layouts.b, layouts.d))
    np.testing.assert_array_equal(product(target, instruction, a, b, c), a @ b + c)
    assert layouts.digest() == DIGESTS[layouts]  # the words of the layout are the calculator's lines


@each_row(("target", "instruction"), [each for each in EVERY if "mfma" in each[1]])
def test_accumulation_registers_take_the_same_places(target: str, instruction: str) -> None:
    """As compilers write a chain: the first product is added to a constant, the next one to the registers."""
    layouts, kind = LAYOUTS[target, instruction], factor(instruction)
    last, pairs = layouts.d.registers - 1, ((A, layouts.a), (B, layouts.b))
    factors = ", ".join(f"v{n}" if layout.registers == 1 else f"v[{n}:{n + 1}]" for n, layout in pairs)
    body = [f"{instruction} a[0:{last}], {factors}, 1.0", f"{instruction} a[0:{last}], {factors}, a[0:{last}]"]
    stored = [f"v{D + each}" for each in range(layouts.d.registers)]
    body += [f"v_accvgpr_read_b32 {name}, a{each}" for each, name in enumerate(stored)]
    loaded = [f"v{first + each}" for first, layout in pairs for each in range(layout.registers)]
    made = kernel(target, "\n".join(body), loaded, stored)
    a, b = drawn(layouts.a, 1), drawn(layouts.b, 1)
    given = [registers(matrix, layout, kind, 64) for matrix, layout in ((a, layouts.a), (b, layouts.b))]
    np.testing.assert_array_equal(read(run(made, np.concatenate(given, axis=1), 1), layouts.d), 2 * (a @ b) + 1)
