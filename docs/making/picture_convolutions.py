"""The picture of all convolutions of a training step: cuDNN, this package and the plain patch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from yolo_rocm.bench.conv import PLAIN, VENDOR

from .benchmarks import any_amd, picture_rows
from .picture import WIDTH, Spot, dots, drawing, legend, text, upright

LEFT, RIGHT, TOP, STEP, FOOT = 108, 40, 66, 46, 74
_COLOURS: Final = {
    VENDOR: "vendor",
    "gemm": "ours",
    "gemm+triton": "third",
    "gemm+triton+hip": "third",
    "triton": "third",
    "auto": "fourth",
    PLAIN: "plain",
}
_NAMES: Final = {
    VENDOR: "cuDNN",
    "gemm": "this package, gemm",
    "gemm+triton": "this package, gemm + triton",
    "gemm+triton+hip": "this package, gemm + triton + hip",
    "triton": "this package, triton",
    "auto": "this package, auto",
    PLAIN: "unfold + matmul patch",
}


def convolutions(folder: Path) -> str:
    """Return the picture. The axis is logarithmic, so these are points on a line and not bars."""
    rows, source = picture_rows(folder)
    values = [value for _, ways in rows for value in ways.values()]
    low, high = _around(min(values), max(values))

    def place(value: float) -> float:
        share = math.log(value / low) / math.log(high / low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    height = TOP + STEP * len(rows) + FOOT
    bottom = TOP + STEP * len(rows) + 6
    shown = [(_COLOURS[way], name) for way, name in _NAMES.items() if any(way in ways for _, ways in rows)]
    parts = [
        text(16, 24, "All convolutions of one training step in NCHW, batch 64 at 640 px, milliseconds", "title"),
        *legend(shown),
    ]
    for tick in _ticks(low, high):
        parts.append(upright(place(tick), TOP - 6, bottom))
        parts.append(text(place(tick), bottom + 16, f"{tick:g}", "small", "middle"))
    for number, (name, ways) in enumerate(rows):
        y = TOP + STEP * number + 24
        parts.append(text(16, y + 4, name))
        parts += dots(y, [Spot(place(value), _figure(value), _COLOURS[way]) for way, value in ways.items()])
    parts.append(text(16, height - 26, "Logarithmic axis; left is faster.", "small"))
    amd = "" if any_amd(folder) else " No AMD card was measured."
    parts.append(text(16, height - 10, f"{source}.{amd}", "small"))
    return drawing(height, "Milliseconds for all convolutions of a training step", parts)


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _around(low: float, high: float) -> tuple[float, float]:
    """Return limits a little outside of the values."""
    return low / 1.15, high * 1.15


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of every decade inside the limits."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**e for e in exponents for step in (1, 2, 5) if low <= step * 10.0**e <= high]
