"""The shortest time of a kernel on a card, computed from the instructions that it executed. Nothing here is measured.

Rates are set against what AMD publishes for the card: instructions of the vector unit (each takes its issue cycles on
one SIMD), those of the matrix unit, bytes through LDS, and bytes of the layer's tensors through memory, each tensor
once. The largest is the bound; what stalls, caches and launches add is not in it. On CDNA the matrix unit works next to
the vector unit, for another wave; on RDNA it is a part of it, and their cycles add up.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True)
class Card:
    """What AMD publishes about a card.

    Attributes:
        name: Of the card.
        units: Compute units.
        clock: Boost clock, GHz.
        memory: Bandwidth, GB/s.
        simds: SIMD units of a compute unit.
        issue: Cycles that a SIMD is busy with a plain vector instruction of a wave.
        matrix: Multiply-adds in a cycle of a SIMD's matrix unit, by data type; none where it has none.
        concurrent: Whether the matrix unit works while the vector unit does.
    """

    name: str
    units: int
    clock: float
    memory: float
    simds: int
    issue: int
    matrix: dict[str, int]
    concurrent: bool = False


# Data sheets of the cards; rates of the units: "RDNA" and "CDNA 3" white papers and ISA documents.
CARDS: Final = {
    "gfx1010": Card("RX 5600 XT", 36, 1.56, 288, 2, 1, {}),
    "gfx1030": Card("RX 6700 XT", 40, 2.581, 384, 2, 1, {}),
    "gfx1100": Card("RX 7900 XTX", 96, 2.5, 960, 2, 1, {"f16": 128, "bf16": 128}),
    "gfx1201": Card("RX 9070 XT", 64, 2.97, 640, 2, 1, {"f16": 256, "bf16": 256}),
    "gfx942": Card("MI300X", 304, 2.1, 5300, 4, 4, {"f32": 32, "f16": 256, "bf16": 256}, concurrent=True),
}
LDS_BYTES_PER_CYCLE: Final = 128  # of a compute unit
# Reciprocals, roots, logarithms and products of whole 32-bit integers run at a quarter of the rate.
_SLOW: Final = re.compile(r"v_(rcp|rsq|sqrt|exp|log|sin|cos|mul_lo_u32|mul_hi_[ui]32(?!_)|mad_(co_)?[ui]64_[ui]32)")
_MATRIX: Final = re.compile(r"v_(?:wmma|mfma)_\w+?_(\d+)x(\d+)x(\d+)_?(f32|f16|bf16)")
_LDS: Final = re.compile(r"ds_(?:read|load|write|store)_?(2)?\w*?_(?:[uib])(8|16|32|64|96|128)")


class Bound(NamedTuple):
    """The shortest time, and what sets it: `vector`, `matrix`, `lds` or `memory`."""

    microseconds: float
    limit: str


def bound(target: str, counts: Counter[str], lanes: int, times: float, tensor_bytes: int) -> Bound | None:
    """Return the bound of a kernel on the card of a target; None where no card is listed.

    Args:
        target: Such as `gfx1100`.
        counts: Instructions, summed over the waves that were run; `vopd` counts pairs that issue together.
        lanes: Of a wave.
        times: How often that work is done by the whole kernel.
        tensor_bytes: Of all tensors that it reads and writes.
    """
    card = CARDS.get(target)
    if card is None:
        return None
    vector, matrix = vector_cycles(counts, card), matrix_cycles(counts, card)
    if not card.concurrent:
        vector, matrix = vector + matrix, 0.0
    simds = card.units * card.simds
    lds = lds_bytes(counts, lanes) * times / (card.units * LDS_BYTES_PER_CYCLE)
    microseconds = {
        "vector": vector * times / simds / card.clock * 1e-3,
        "matrix": matrix * times / simds / card.clock * 1e-3,
        "lds": lds / card.clock * 1e-3,
        "memory": tensor_bytes / card.memory * 1e-3,
    }
    limit = max(microseconds, key=lambda name: microseconds[name])
    return Bound(microseconds[limit], limit)


def vector_cycles(counts: Counter[str], card: Card) -> float:
    """Return the cycles that one SIMD is busy with vector instructions of waves, those of the matrix unit left out."""
    total = 0.0
    for name, number in counts.items():
        if name.startswith("v_") and not _MATRIX.match(name):
            total += number * card.issue * (4 if _SLOW.match(name) else 1)
    return total - counts["vopd"] * card.issue  # two of them in the time of one


def matrix_cycles(counts: Counter[str], card: Card) -> float:
    """Return the cycles that the matrix unit of one SIMD is busy with the instructions of waves."""
    total = 0.0
    for name, number in counts.items():
        if match := _MATRIX.match(name):
            m, n, k = (int(match[part]) for part in (1, 2, 3))
            total += number * m * n * k / card.matrix[match[4]]
    return total


def lds_bytes(counts: Counter[str], lanes: int) -> int:
    """Return the bytes that LDS instructions of waves move; a permutation of lanes moves four for each."""
    total = 0
    for name, number in counts.items():
        if match := _LDS.match(name):
            total += number * lanes * int(match[2]) // 8 * (2 if match[1] else 1)
        elif name.startswith("ds_"):
            total += number * lanes * 4
    return total
