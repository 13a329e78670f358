"""Series of numbers thin enough for a page: what is left out is still inside the band of its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .files import number

POINTS = 400
CLOCK = "clock"


@dataclass(frozen=True)
class Series:
    """One line of a chart. A gap is None.

    Attributes:
        name: What it is called in the legend.
        x: Positions, ascending.
        y: Means of what was thinned into each point.
        low: Smallest value in each point.
        high: Largest.
        unit: Unit of `y`.
        mark: Letter of the run it is of, where there are two.
    """

    name: str
    x: list[float]
    y: list[float | None]
    low: list[float | None]
    high: list[float | None]
    unit: str = ""
    mark: str = ""

    @property
    def label(self) -> str:
        """Name with the letter of its run."""
        return f"{self.mark} {self.name}".strip()

    @property
    def known(self) -> list[float]:
        """Values without the gaps."""
        return [value for value in self.y if value is not None]

    @property
    def thinned(self) -> bool:
        """Whether points are made of more than one value."""
        return self.low != self.high


def thin(name: str, x: Sequence[float], y: Sequence[float | None], unit: str = "", points: int = POINTS) -> Series:
    """Return a series of at most so many points, each the mean, least and largest of neighbouring values."""
    size = -(-len(x) // points) if x else 1
    if size == 1:
        return Series(name, list(x), list(y), list(y), list(y), unit)
    thinned = Series(name, [], [], [], [], unit)
    for start in range(0, len(x), size):
        places = x[start : start + size]
        part = [value for value in y[start : start + size] if value is not None]
        thinned.x.append(sum(places) / len(places))
        thinned.y.append(sum(part) / len(part) if part else None)
        thinned.low.append(min(part, default=None))
        thinned.high.append(max(part, default=None))
    return thinned


@dataclass(frozen=True)
class Columns:
    """A CSV file by columns."""

    x: list[float]
    values: dict[str, list[float | None]]

    def known(self, name: str) -> list[float]:
        """Return a column without its gaps; empty where there is no such column."""
        return [value for value in self.values.get(name, ()) if value is not None]


def by_epoch(columns: list[str], rows: list[list[str]]) -> tuple[Columns, int]:
    """Return a table by epoch, in order, and how many epochs it holds more than once: the last one counts."""
    if "epoch" not in columns:
        return Columns([], {}), 0
    place = columns.index("epoch")
    last = {epoch: row for row in rows if (epoch := number(row[place])) is not None}
    epochs = sorted(last)
    values = {name: [number(last[e][i]) for e in epochs] for i, name in enumerate(columns) if i != place}
    return Columns(epochs, values), len(rows) - len(last)


def by_time(columns: list[str], rows: list[list[str]]) -> tuple[Columns, int]:
    """Return a table by minutes since its beginning, and how many pauses were cut out.

    A resumed run counts from another start of the clock, after a pause. The clock itself is `CLOCK`.
    """
    if "time" not in columns:
        return Columns([], {}), 0
    place = columns.index("time")
    timed = [(when, row) for row in rows if (when := number(row[place])) is not None]
    steps = sorted(b[0] - a[0] for a, b in pairwise(timed) if b[0] > a[0])
    usual = steps[len(steps) // 2] if steps else 1.0
    gap = [""] * len(columns)
    minutes: list[float] = []
    cells: list[list[str]] = []
    now, pauses = 0.0, 0
    for index, (when, row) in enumerate(timed):
        step = when - timed[index - 1][0] if index else 0.0
        if step < 0 or step > max(60.0, 20 * usual):
            pauses += 1
            minutes.append((now + usual) / 60)
            cells.append(gap)
            step = 2 * usual
        now += step
        minutes.append(now / 60)
        cells.append(row)
    values = {CLOCK if i == place else name: [number(row[i]) for row in cells] for i, name in enumerate(columns)}
    return Columns(minutes, values), pauses


def plain(series: Series) -> dict[str, Any]:
    """Return a series for the page's script: three digits after the point are more than a screen shows."""

    def short(values: Sequence[float | None]) -> list[float | None]:
        return [None if value is None else float(f"{value:.4g}") for value in values]

    data: dict[str, Any] = {"name": series.label, "unit": series.unit, "x": short(series.x), "y": short(series.y)}
    if series.thinned:
        data.update(low=short(series.low), high=short(series.high))
    return data
