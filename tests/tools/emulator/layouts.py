"""Where each element of a matrix instruction is, as AMD's matrix instruction calculator prints it.

Source: github.com/ROCm/amd_matrix_instruction_calculator, commit 2ef91896 (2025-05-20, MIT), for RDNA3, RDNA4, CDNA2
and CDNA3. Its tables are linear: every bit of a register's number (from the operand's first), of a lane and of the half
of a register is one bit of the element's row or column. So a few words say all of a table: `r0` is bit 0 of the row,
`c3` bit 3 of the column, `*` both values (the element is there twice), lowest bit first. `DIGESTS` are of the
calculator's lines, so that a slip in these words is seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Layout:
    """Where the elements of A, B or D are; C is as D."""

    rows: int
    columns: int
    register: str
    lane: str
    half: str = ""

    def places(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield row, column, register, lane and lowest bit of every element, both where one is there twice."""
        twice = 2 if "*" in self.lane else 1
        for row in range(self.rows):
            for column in range(self.columns):
                for other in range(twice):
                    register, lane, half = (
                        _number(words, row, column, other) for words in (self.register, self.lane, self.half)
                    )
                    yield row, column, register, lane, 16 * half

    @property
    def registers(self) -> int:
        """Return how many registers the operand takes."""
        return int(2 ** len(self.register.split()))


def _number(words: str, row: int, column: int, other: int) -> int:
    found = 0
    for place, word in enumerate(words.split()):
        value = other if word == "*" else (row if word[0] == "r" else column) >> int(word[1:])
        found |= (value & 1) << place
    return found


@dataclass(frozen=True)
class Matrices:
    """The layouts of one instruction's operands."""

    a: Layout
    b: Layout
    d: Layout

    def digest(self) -> str:
        """Return the digest of the calculator's lines for these operands."""
        named = zip("ABD", (self.a, self.b, self.d), strict=True)
        lines = sorted(f"{name},{','.join(map(str, place))}" for name, layout in named for place in layout.places())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


# On RDNA3 lanes 16 to 31 repeat what lanes 0 to 15 have of A and B.
_RDNA3: Final = Matrices(
    Layout(16, 16, "c1 c2 c3", "r0 r1 r2 r3 *", "c0"),
    Layout(16, 16, "r1 r2 r3", "c0 c1 c2 c3 *", "r0"),
    Layout(16, 16, "r1 r2 r3", "c0 c1 c2 c3 r0"),
)
_RDNA4_A: Final = Layout(16, 16, "c1 c3", "r0 r1 r2 r3 c2", "c0")
_RDNA4_B: Final = Layout(16, 16, "r1 r3", "c0 c1 c2 c3 r2", "r0")
_RDNA4: Final = Matrices(_RDNA4_A, _RDNA4_B, Layout(16, 16, "r0 r1 r2", "c0 c1 c2 c3 r3"))
_D_32X32: Final = Layout(32, 32, "r0 r1 r3 r4", "c0 c1 c2 c3 c4 r2")
_D_16X16: Final = Layout(16, 16, "r0 r1", "c0 c1 c2 c3 r2 r3")
_32X32X2: Final = Matrices(Layout(32, 2, "", "r0 r1 r2 r3 r4 c0"), Layout(2, 32, "", "c0 c1 c2 c3 c4 r0"), _D_32X32)
_16X16X4: Final = Matrices(Layout(16, 4, "", "r0 r1 r2 r3 c0 c1"), Layout(4, 16, "", "c0 c1 c2 c3 r0 r1"), _D_16X16)
_32X32X8: Final = Matrices(
    Layout(32, 8, "c1", "r0 r1 r2 r3 r4 c2", "c0"), Layout(8, 32, "r1", "c0 c1 c2 c3 c4 r2", "r0"), _D_32X32
)
_16X16X16: Final = Matrices(
    Layout(16, 16, "c1", "r0 r1 r2 r3 c2 c3", "c0"), Layout(16, 16, "r1", "c0 c1 c2 c3 r2 r3", "r0"), _D_16X16
)

LAYOUTS: Final = {
    ("gfx1100", "v_wmma_f32_16x16x16_f16"): _RDNA3,
    ("gfx1100", "v_wmma_f32_16x16x16_bf16"): _RDNA3,
    # RDNA3.5 has the matrix instructions of RDNA3
    ("gfx1151", "v_wmma_f32_16x16x16_f16"): _RDNA3,
    ("gfx1151", "v_wmma_f32_16x16x16_bf16"): _RDNA3,
    ("gfx1201", "v_wmma_f32_16x16x16_f16"): _RDNA4,
    ("gfx1201", "v_wmma_f32_16x16x16_bf16"): _RDNA4,
    ("gfx90a", "v_mfma_f32_32x32x2f32"): _32X32X2,
    ("gfx90a", "v_mfma_f32_16x16x4f32"): _16X16X4,
    ("gfx90a", "v_mfma_f32_32x32x8f16"): _32X32X8,
    ("gfx90a", "v_mfma_f32_16x16x16f16"): _16X16X16,
    ("gfx90a", "v_mfma_f32_32x32x8bf16_1k"): _32X32X8,
    ("gfx90a", "v_mfma_f32_16x16x16bf16_1k"): _16X16X16,
    ("gfx942", "v_mfma_f32_32x32x2_f32"): _32X32X2,
    ("gfx942", "v_mfma_f32_16x16x4_f32"): _16X16X4,
    ("gfx942", "v_mfma_f32_32x32x8_f16"): _32X32X8,
    ("gfx942", "v_mfma_f32_16x16x16_f16"): _16X16X16,
    ("gfx942", "v_mfma_f32_32x32x8_bf16"): _32X32X8,
    ("gfx942", "v_mfma_f32_16x16x16_bf16"): _16X16X16,
}
_BY_LAYOUT: Final = (
    (_RDNA3, "ac70aa3f45e6428c"),
    (_RDNA4, "999d837ffc3fd2ef"),
    (_32X32X2, "c92a4817a705fee2"),
    (_16X16X4, "e7a3e0687a39d9e7"),
    (_32X32X8, "6c1b691b84c32114"),
    (_16X16X16, "e67229f92aaf2f79"),
)
DIGESTS: Final = dict(_BY_LAYOUT)
