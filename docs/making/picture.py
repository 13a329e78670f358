"""What the pictures of benchmarks are drawn with: an SVG without fonts and scripts, light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 760
_LABEL: Final = 30  # width of the label of a point, and some room
_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #24292f } .small { font-size: 11px; fill: #57606a }
.title { font-size: 15px; font-weight: 600 } .grid { stroke: #d0d7de } .line { stroke: #afb8c1; stroke-width: 2 }
.back { fill: #ffffff } .vendor { fill: #57606a } .ours { fill: #cf222e } .third { fill: #8250df }
.fourth { fill: #1a7f37 } .plain { fill: #0969da } .peer { stroke: #57606a; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .grid { stroke: #30363d } .line { stroke: #57606a }
.back { fill: #0d1117 } .vendor { fill: #9198a1 } .ours { fill: #ff7b72 } .third { fill: #d2a8ff }
.fourth { fill: #56d364 } .plain { fill: #79c0ff } .peer { stroke: #9198a1 } }
"""


@dataclass(frozen=True, order=True)
class Spot:
    """A point on a line: where, what it is labelled with, and its colour by the name in the style."""

    x: float
    label: str
    colour: str


def drawing(height: float, label: str, parts: Iterable[str]) -> str:
    """Return a whole picture.

    Args:
        height: Its height; the width is always the same.
        label: What somebody hears who cannot see it.
        parts: What is in it.
    """
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" aria-label="{escape(label)}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="back" width="{WIDTH}" height="{height}"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return words, in a kind of the style."""
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def upright(x: float, top: float, bottom: float, kind: str = "grid") -> str:
    """Return a vertical line."""
    return f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'


def dots(y: float, spots: Sequence[Spot]) -> list[str]:
    """Return points with labels of their colour, and the line they are on."""
    inside = sorted(spots)
    parts = [f'<line class="line" x1="{inside[0].x:.1f}" x2="{inside[-1].x:.1f}" y1="{y}" y2="{y}"/>']
    above = below = -math.inf  # where the next label has room
    for spot in inside:
        parts.append(f'<circle class="{spot.colour}" cx="{spot.x:.1f}" cy="{y}" r="6"/>')
        if spot.x >= above:
            parts.append(text(spot.x, y - 11, spot.label, f"small {spot.colour}", "middle"))
            above = spot.x + _LABEL
        else:  # below, where two labels would touch, and beside one that is there already
            x = max(spot.x, below)
            parts.append(text(x, y + 20, spot.label, f"small {spot.colour}", "middle"))
            below = x + _LABEL
    return parts


def legend(names: Iterable[tuple[str, str]]) -> list[str]:
    """Return what the colours mean, from (colour, meaning), in one line."""
    parts, x = [], 16.0
    for colour, name in names:
        parts.append(f'<circle class="{colour}" cx="{x + 6:.0f}" cy="42" r="6"/>')
        parts.append(text(x + 18, 46, name))
        x += 40 + 7.2 * len(name)
    return parts
