"""Results of sampled steps, read when the device has come by, and their medians."""

from __future__ import annotations

from statistics import median
from typing import Protocol


class Timer(Protocol):
    """The marks of one step."""

    def has_passed(self) -> bool:
        """Return whether they can be read without waiting."""

    def result(self) -> dict[str, float]:
        """Return milliseconds by name; nothing where the step does not count."""


class Medians:
    """What timers of several steps have shown."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Timer]] = []
        self._results: dict[int, dict[str, float]] = {}

    def take(self, step: int, timer: Timer) -> None:
        """Take the timer of a step that has been run."""
        self._waiting.append((step, timer))
        self._collect()

    def of(self, warm_from: int) -> dict[str, float]:
        """Return the median of each value over the steps that have it at all.

        Args:
            warm_from: Steps before this one count only where there are no others.
        """
        self._collect()
        warm = [result for step, result in self._results.items() if step >= warm_from]
        rows = warm or list(self._results.values())
        known = {name: [row[name] for row in rows if row[name] > 0] for name in (rows[0] if rows else ())}
        return {name: median(values) for name, values in known.items() if values}

    def _collect(self) -> None:
        while self._waiting and self._waiting[0][1].has_passed():
            step, timer = self._waiting.pop(0)
            result = timer.result()
            if result:
                self._results[step] = result
