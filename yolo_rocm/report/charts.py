"""Line charts as inline SVG, drawn here so that the page also shows them without a script, and prints them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from . import labels
from .axis import nice_step, tick, ticks
from .series import Series, plain

# Small, so that the letters are still letters where a phone shows it at three quarters of the size.
WIDTH: Final = 380
HEIGHT: Final = 200
LEFT: Final = 54
RIGHT: Final = 12
TOP: Final = 10
BOTTOM: Final = 36
MOST_LINES: Final = 6
# Below the one a time is in seconds, from the other on in hours.
_FEW_MINUTES: Final = 3.0
_MANY_MINUTES: Final = 180.0
# Of the lines of two runs; those of one run are numbered.
_STYLES: Final = {"A": 0, "B": 1}


@dataclass(frozen=True)
class Chart:
    """One chart.

    Attributes:
        title: Heading.
        lines: Its lines; those without a value are left out.
        x_label: What the horizontal axis counts.
        percent: Whether the vertical axis is a percentage from 0 to 100.
        more: Lines that are in no chart, for want of room.
    """

    title: str
    lines: Sequence[Series]
    x_label: str
    percent: bool = False
    more: int = 0

    @cached_property
    def _known(self) -> list[Series]:
        return [line for line in self.lines if line.known]

    @cached_property
    def shown(self) -> list[Series]:
        """Lines that have a value."""
        return self._known[:MOST_LINES]

    @property
    def left_out(self) -> int:
        """Lines that have values and no room."""
        return self.more + len(self._known) - len(self.shown)

    @property
    def styles(self) -> list[int]:
        """Number of the colour, and of the dashes, of each line shown: no two have the same."""
        return [_STYLES.get(line.mark, index) for index, line in enumerate(self.shown)]

    @property
    def unit(self) -> str:
        """Unit of the vertical axis."""
        return self.shown[0].unit if self.shown else ""

    @property
    def _labels(self) -> list[str]:
        """What stands at the ends of the lines; one line alone is what the title says."""
        return [line.mark or line.name for line in self.shown] if len(self.shown) > 1 or self._of_two else []

    @property
    def _of_two(self) -> bool:
        return any(line.mark for line in self.shown)

    @property
    def height(self) -> float:
        """Height of the drawing, with room for every label."""
        return max(HEIGHT, TOP + BOTTOM + labels.APART * len(self._labels))

    @property
    def right(self) -> float:
        """Where the plot ends."""
        return WIDTH - (labels.margin(self._labels) if self._labels else RIGHT)

    def limits(self) -> tuple[float, float]:
        """Return the limits of the vertical axis, at round numbers."""
        values = [v for line in self.shown for v in (*line.low, *line.high) if v is not None]
        if self.percent:
            return 0.0, 100.0
        low, high = min(values, default=0.0), max(values, default=1.0)
        if math.isclose(low, high):  # rounding alone: no step between them would be one of a float
            low = high
        low = 0.0 if 0 <= low < 0.6 * high or low == high > 0 else low
        if low == high:
            high = low + 1.0
        while True:
            step = nice_step(high - low)
            limits = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
            if nice_step(limits[1] - limits[0]) == step:  # else some of the ends would be between the ticks
                return limits
            low, high = limits

    def span(self) -> tuple[float, float]:
        """Return the limits of the horizontal axis."""
        places = [x for line in self.shown for x in line.x] or [0.0]
        low, high = min(places), max(places)
        return (low, high) if high > low else (low - 0.5, high + 0.5)

    def drawing(self) -> dict[str, Any]:
        """Return what the template draws: paths, ticks and places."""
        low, high = self.limits()
        x_low, x_high = self.span()

        right, bottom = self.right, self.height - BOTTOM

        def across(x: float) -> float:
            return LEFT + (x - x_low) / (x_high - x_low) * (right - LEFT)

        def down(y: float) -> float:
            return TOP + (high - y) / (high - low) * (bottom - TOP)

        ends = [next((x, y) for x, y in _points(line)[::-1] if y is not None) for line in self.shown]
        return {
            "right": round(right, 1),
            "bottom": bottom,
            "paths": [_path(line, across, down) for line in self.shown],
            "bands": [_band(line, across, down) if line.thinned else "" for line in self.shown],
            "ends": [(round(across(x), 1), round(down(y), 1)) for x, y in ends],
            "labels": self._placed([down(y) for _, y in ends]),
            "y_ticks": [(round(down(value), 1), tick(value)) for value in ticks(low, high)],
            "x_ticks": [(round(across(value), 1), tick(value)) for value in self._x_ticks(x_low, x_high)],
        }

    def _placed(self, ends: Sequence[float]) -> list[tuple[float, float, str]]:
        """Return where each label is, and what it says."""
        if not self._labels:
            return []
        places = labels.spread_out(ends, TOP, self.height - BOTTOM)
        x = round(self.right + labels.GAP, 1)
        return [(x, round(y, 1), labels.shortened(name)) for y, name in zip(places, self._labels, strict=True)]

    def _x_ticks(self, low: float, high: float) -> list[float]:
        """Return round numbers along the horizontal axis; there is no half epoch."""
        return [value for value in ticks(low, high, 5) if self.x_label != "epoch" or value == round(value)]

    def data(self) -> dict[str, Any]:
        """Return what the page's script needs to answer a pointer."""
        return {"x_label": self.x_label, "span": self.span(), "lines": [plain(line) for line in self.shown]}


def overlaid(first: Sequence[Chart], second: Sequence[Chart]) -> list[Chart]:
    """Return the charts of two runs drawn over each other: one for each line, so that a chart has A and B alone."""
    pairs = []
    for title in dict.fromkeys(chart.title for chart in (*first, *second)):
        both = [(mark, c) for mark, charts in (("A", first), ("B", second)) for c in charts if c.title == title]
        lines = [replace(line, mark=mark) for mark, chart in both for line in chart.lines if line.known]
        names = list(dict.fromkeys(line.name for line in lines))
        for name in names[:MOST_LINES]:
            heading = title if len(names) == 1 else f"{title}: {name}"
            same = [line for line in lines if line.name == name]
            more = max(0, len(names) - MOST_LINES) if name == names[:MOST_LINES][-1] else 0
            pairs.append(replace(both[0][1], title=heading, lines=same, more=more))
    return pairs


def readable(chart: Chart) -> Chart:
    """Return a chart by minutes as one by seconds or by hours, where those are easier to read."""
    longest = max((line.x[-1] for line in chart.shown), default=0.0)
    if chart.x_label != "minutes" or _FEW_MINUTES <= longest < _MANY_MINUTES:
        return chart
    factor, label = (60.0, "seconds") if longest < _FEW_MINUTES else (1 / 60, "hours")
    lines = [replace(line, x=[x * factor for x in line.x]) for line in chart.lines]
    return replace(chart, lines=lines, x_label=label)


def _points(line: Series) -> list[tuple[float, float | None]]:
    return list(zip(line.x, line.y, strict=True))


def _path(line: Series, across: Any, down: Any) -> str:
    parts: list[str] = []
    pen_down = False
    for x, y in _points(line):
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
