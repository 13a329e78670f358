"""Tables that a training leaves, by columns: by epoch, or by minutes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from .files import number

CLOCK = "clock"


@dataclass(frozen=True)
class RunTable:
    """A CSV file by columns."""

    x: list[float]
    values: dict[str, list[float | None]]

    def known(self, name: str) -> list[float]:
        """Return a column without its gaps; empty where there is no such column."""
        return [value for value in self.values.get(name, ()) if value is not None]


def by_epoch(columns: list[str], rows: list[list[str]]) -> tuple[RunTable, int]:
    """Return a table by epoch, in order, and how many epochs it holds more than once: the last one counts."""
    if "epoch" not in columns:
        return RunTable([], {}), 0
    place = columns.index("epoch")
    last = {epoch: row for row in rows if (epoch := number(row[place])) is not None}
    epochs = sorted(last)
    values = {name: [number(last[e][i]) for e in epochs] for i, name in enumerate(columns) if i != place}
    return RunTable(epochs, values), len(rows) - len(last)


def by_time(columns: list[str], rows: list[list[str]]) -> tuple[RunTable, int]:
    """Return a table by minutes since its beginning, and how many pauses were cut out.

    A resumed run counts from another start of the clock, after a pause. The clock itself is `CLOCK`.
    """
    if "time" not in columns:
        return RunTable([], {}), 0
    place = columns.index("time")
    timed = [(when, row) for row in rows if (when := number(row[place])) is not None]
    steps = [after - before for (before, _), (after, _) in pairwise(timed)]
    usual = median([step for step in steps if step > 0] or [1.0])
    minutes: list[float] = []
    cells: list[list[str]] = []
    now, pauses = 0.0, 0
    for step, (_, row) in zip([0.0, *steps], timed, strict=False):
        if step < 0 or step > max(60.0, 20 * usual):
            pauses += 1
            step = 2 * usual
            minutes.append((now + usual) / 60)
            cells.append([""] * len(columns))
        now += step
        minutes.append(now / 60)
        cells.append(row)
    values = {CLOCK if i == place else name: [number(row[i]) for row in cells] for i, name in enumerate(columns)}
    return RunTable(minutes, values), pauses
