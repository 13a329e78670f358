"""The picture of the README: what all convolutions of a training step cost, as an SVG without fonts and scripts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from yolo_rocm.bench.conv import PLAIN, VENDOR

from .benchmarks import any_amd, picture_rows

WIDTH: Final = 760
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
_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #24292f } .small { font-size: 11px; fill: #57606a }
.title { font-size: 15px; font-weight: 600 } .grid { stroke: #d0d7de } .line { stroke: #afb8c1; stroke-width: 2 }
.back { fill: #ffffff } .vendor { fill: #57606a } .ours { fill: #cf222e } .third { fill: #8250df }
.fourth { fill: #1a7f37 } .plain { fill: #0969da }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .grid { stroke: #30363d } .line { stroke: #57606a }
.back { fill: #0d1117 } .vendor { fill: #9198a1 } .ours { fill: #ff7b72 } .third { fill: #d2a8ff }
.fourth { fill: #56d364 } .plain { fill: #79c0ff } }
"""


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
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-label="Milliseconds for all convolutions of a training step">',
        f"<style>{_STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{height}"/>',
        _text(16, 24, "All convolutions of one training step, batch 64 at 640 px, milliseconds", "title"),
        *_legend(rows),
    ]
    for tick in _ticks(low, high):
        x = place(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
        parts.append(_text(x, bottom + 16, f"{tick:g}", "small", "middle"))
    for number, (name, ways) in enumerate(rows):
        parts += _row(TOP + STEP * number + 24, name, ways, place)
    parts.append(_text(16, height - 26, "Logarithmic axis; left is faster.", "small"))
    amd = "" if any_amd(folder) else " No AMD card was measured."
    parts.append(_text(16, height - 10, f"{source}.{amd}", "small"))
    return "\n".join([*parts, "</svg>", ""])


def _row(y: float, name: str, ways: Mapping[str, float], place: Callable[[float], float]) -> list[str]:
    spots = sorted((place(value), value, way) for way, value in ways.items())
    parts = [_text(16, y + 4, name)]
    parts.append(f'<line class="line" x1="{spots[0][0]:.1f}" x2="{spots[-1][0]:.1f}" y1="{y}" y2="{y}"/>')
    free = -math.inf
    for x, value, way in spots:
        parts.append(f'<circle class="{_COLOURS[way]}" cx="{x:.1f}" cy="{y}" r="6"/>')
        above = x >= free  # two labels that would touch: the second one goes below
        label = f"{value:.0f}" if value >= 100 else f"{value:.1f}"
        parts.append(_text(x, y - 11 if above else y + 20, label, "small", "middle"))
        free = x + 30 if above else free
    return parts


def _legend(rows: Sequence[tuple[str, Mapping[str, float]]]) -> list[str]:
    parts, x = [], 16.0
    for way, name in _NAMES.items():
        if any(way in ways for _, ways in rows):
            parts.append(f'<circle class="{_COLOURS[way]}" cx="{x + 6:.0f}" cy="42" r="6"/>')
            parts.append(_text(x + 18, 46, name))
            x += 40 + 7.2 * len(name)
    return parts


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _around(low: float, high: float) -> tuple[float, float]:
    """Return limits a little outside of the values."""
    return low / 1.15, high * 1.15


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of every decade inside the limits."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**e for e in exponents for step in (1, 2, 5) if low <= step * 10.0**e <= high]
