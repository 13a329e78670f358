"""Samples of the table of kernels that change from day to day: every kernel and every target, but not every pair."""

from __future__ import annotations

import os
from datetime import date
from functools import lru_cache

from tools import compile_kernels
from tools.kernel import DTYPES, TARGETS

# Which sample it is; a failure says so, and this variable brings it back.
ROTATION = int(os.environ.get("YOLO_ROCM_ROTATION", date.today().toordinal()))
KERNELS_PER_TARGET = 4


def listed(targets, dtypes, layouts) -> list[tuple[str, ...]]:
    return [
        (target, kernel.name, kernel.tile, dtype, layout)
        for target in targets
        for dtype in dtypes
        for layout in layouts
        for kernel in compile_kernels.curated(target, dtype, layout == "nhwc")
    ]


@lru_cache
def every_row() -> list[tuple[str, ...]]:
    return listed(TARGETS, DTYPES, ("nhwc", "nchw"))


@lru_cache
def rows_of() -> dict[tuple[str, str], list[tuple[str, ...]]]:
    """Return the rows of each target and kernel."""
    found: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for row in every_row():
        found.setdefault(row[:2], []).append(row)
    return found


def sample(rotation: int) -> list[tuple[str, ...]]:
    """Return rows of the table: every target, every kernel; tiles, data types and layouts take turns."""
    names = list(dict.fromkeys(name for _, name in rows_of()))
    chosen = []
    for number, target in enumerate(TARGETS):
        for turn in range(KERNELS_PER_TARGET):
            own = rows_of()[target, names[(KERNELS_PER_TARGET * number + turn + rotation) % len(names)]]
            chosen.append(own[(7 * (rotation + rotation // len(names)) + 3 * number + 5 * turn) % len(own)])
    return chosen
