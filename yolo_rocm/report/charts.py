"""Line charts as inline SVG, drawn here so that the page also shows them without a script, and prints them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from .series import Series, plain

# Small, so that the letters are still letters where a phone shows it at three quarters of the size.
WIDTH: Final = 380
HEIGHT: Final = 200
LEFT: Final = 54
RIGHT: Final = 12
TOP: Final = 10
BOTTOM: Final = 36
MOST_LINES: Final = 6


@dataclass(frozen=True)
class Chart:
    """One chart.

    Attributes:
        title: Heading.
        lines: Its lines; those without a value are left out.
        x_label: What the horizontal axis counts.
        percent: Whether the vertical axis is a percentage from 0 to 100.
    """

    title: str
    lines: Sequence[Series]
    x_label: str
    percent: bool = False

    @cached_property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(line.name for line in self.lines if line.known))

    @cached_property
    def shown(self) -> list[Series]:
        """Lines that have a value."""
        return [line for line in self.lines if line.known and line.name in self._names[:MOST_LINES]]

    @property
    def left_out(self) -> int:
        """Lines that have values and no room."""
        return sum(1 for line in self.lines if line.known) - len(self.shown)

    @property
    def colours(self) -> list[int]:
        """Number of the colour of each line shown: lines of the same name have the same colour."""
        return [self._names.index(line.name) for line in self.shown]

    def limits(self) -> tuple[float, float]:
        """Return the limits of the vertical axis, at round numbers."""
        values = [v for line in self.shown for v in (*line.low, *line.high) if v is not None]
        if self.percent:
            return 0.0, 100.0
        low, high = min(values, default=0.0), max(values, default=1.0)
        low = 0.0 if 0 <= low < 0.6 * high or low == high > 0 else low
        if low == high:
            high = low + 1.0
        step = nice_step(high - low)
        return math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step

    def span(self) -> tuple[float, float]:
        """Return the limits of the horizontal axis."""
        places = [x for line in self.shown for x in line.x] or [0.0]
        low, high = min(places), max(places)
        return (low, high) if high > low else (low - 0.5, high + 0.5)

    def drawing(self) -> dict[str, Any]:
        """Return what the template draws: paths, ticks and places."""
        low, high = self.limits()
        x_low, x_high = self.span()

        def across(x: float) -> float:
            return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

        def down(y: float) -> float:
            return TOP + (high - y) / (high - low) * (HEIGHT - TOP - BOTTOM)

        return {
            "paths": [_path(line, across, down) for line in self.shown],
            "bands": [_band(line, across, down) if line.thinned else "" for line in self.shown],
            "y_ticks": [(round(down(value), 1), tick(value)) for value in ticks(low, high)],
            "x_ticks": [(round(across(value), 1), tick(value)) for value in self._x_ticks(x_low, x_high)],
        }

    def _x_ticks(self, low: float, high: float) -> list[float]:
        """Return round numbers along the horizontal axis; there is no half epoch."""
        return [value for value in ticks(low, high, 5) if self.x_label != "epoch" or value == round(value)]

    def data(self) -> dict[str, Any]:
        """Return what the page's script needs to answer a pointer."""
        return {"x_label": self.x_label, "span": self.span(), "lines": [plain(line) for line in self.shown]}


def overlaid(first: Chart, second: Chart) -> Chart:
    """Return the same chart of two runs as one: the lines of the first are A, those of the second B."""
    lines = [replace(line, mark=mark) for mark, chart in (("A", first), ("B", second)) for line in chart.lines]
    return replace(first, lines=lines, percent=first.percent and second.percent)


def nice_step(span: float, count: int = 4) -> float:
    """Return 1, 2 or 5 times a power of ten, so that about `count` of them make the span."""
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    return next((factor * power for factor in (1, 2, 5) if factor * power >= raw * 0.999), 10 * power)


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return round numbers within limits."""
    step = nice_step(high - low, count)
    first = math.ceil(low / step - 1e-9)
    return [(first + i) * step for i in range(int((high - first * step) / step + 1e-9) + 1)]


def tick(value: float) -> str:
    """Write a number short."""
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.6g}"


def _path(line: Series, across: Any, down: Any) -> str:
    parts: list[str] = []
    pen_down = False
    for x, y in zip(line.x, line.y, strict=True):
        if y is None:
            pen_down = False
            continue
        parts.append(f"{'L' if pen_down else 'M'}{across(x):.1f} {down(y):.1f}")
        if not pen_down:
            parts.append("h0")  # a point between two gaps shows as a dot
        pen_down = True
    return "".join(parts)


def _band(line: Series, across: Any, down: Any) -> str:
    """Return the area between least and largest values, in one piece for each stretch without a gap."""
    pieces: list[str] = []
    stretch: list[tuple[float, float, float]] = []
    for x, low, high in [*zip(line.x, line.low, line.high, strict=True), (0.0, None, None)]:
        if low is not None and high is not None:
            stretch.append((across(x), down(low), down(high)))
        elif stretch:
            there = "L".join(f"{x:.1f} {high:.1f}" for x, _, high in stretch)
            back = "L".join(f"{x:.1f} {low:.1f}" for x, low, _ in reversed(stretch))
            pieces.append(f"M{there}L{back}Z")
            stretch = []
    return "".join(pieces)
