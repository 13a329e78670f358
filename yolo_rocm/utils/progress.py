"""Progress on stderr, with the time left as rich estimates it: rich's bar on a terminal, lines now and then elsewhere.

Nothing disturbs what is being measured: with `timed` no thread runs next to the work, and the bar is drawn only when
the work itself says how far it is, from its beginning on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .console import console, is_terminal

_SHORT_S: Final = 2.0  # shorter work shows no line
_LINES_S: Final = 5.0  # between two lines
_RECENT_S: Final = 600.0  # the estimate is by the steps of this time: a step may take minutes


class Pace(Progress):
    """How far one piece of work is and what is left, in words, and when another line about it is due.

    Args:
        limit_s: Seconds after which the work ends by itself, done or not.
        at_once: The first line is due before the work has taken long.
        title: What is going on, for the bar.
        display: Options of rich's bar; it is not shown unless `disable` is False.
    """

    def __init__(self, limit_s: float | None = None, *, at_once: bool = False, title: str = "", **display: Any) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"), TimeElapsedColumn()
        options = {"disable": True, "get_time": lambda: time.monotonic(), "speed_estimate_period": _RECENT_S, **display}
        super().__init__(*columns, **options)
        self.add_task(title, total=None, words="")
        (self._work,) = self.tasks
        self._limit_s, self._at_once = limit_s, at_once
        self.line_at_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - (self._work.start_time or 0.0)

    @property
    def is_long(self) -> bool:
        """Whether the work has taken long enough to be worth a word."""
        return self._at_once or self.elapsed_s >= _SHORT_S

    def reached(self, done: int, total: int) -> None:
        """Take how far the work is."""
        self.update(self._work.id, completed=done, total=total)
        self.update(self._work.id, words=self.words(), refresh=not self.live.auto_refresh)

    def words(self, ending: str = "") -> str:
        """Return how far it is, and what is left or how it has ended."""
        left = None if ending else self._work.time_remaining
        if left and self._limit_s is not None:
            left = min(left, self._limit_s - self.elapsed_s)
        after = f", about {duration(left)} left" if left else ending and f"{ending} {duration(self.elapsed_s)}"
        return f"{self._work.completed:.0f} of {self._work.total:.0f}{after}"

    def line_due(self) -> bool:
        """Return whether it is time for another line, and take it that one follows."""
        now, before = self.elapsed_s, self.line_at_s
        due = self.is_long and (before is None or (now - before >= _LINES_S and not self._work.finished))
        self.line_at_s = now if due else before
        return due


def duration(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def progress(
    title: str, *, timed: bool = False, limit_s: float | None = None, stream: TextIO | None = None
) -> Iterator[Callable[[int, int], None]]:
    """Show on stderr, or on another stream, how far a piece of work is; yield what takes (done, all). See `Pace`."""
    stream = sys.stderr if stream is None else stream
    if stream is None:  # a program without a console
        yield lambda done, total: None
    elif is_terminal(stream):
        shown: dict[str, Any] = {"console": console(file=stream), "disable": False, "transient": True}
        with Pace(limit_s, title=title, auto_refresh=not timed, redirect_stdout=False, **shown) as pace:
            yield pace.reached
    else:
        pace, ending = Pace(limit_s, at_once=timed), ", stopped after"

        def write(words: str) -> None:
            with suppress(OSError, ValueError):  # a pipe that nobody reads any more
                stream.write(f"{title}: {words}\n")
                stream.flush()

        def show(done: int, total: int) -> None:
            pace.reached(done, total)
            if pace.line_due():
                write(pace.words())

        try:
            yield show
            ending = " in"
        finally:
            if pace.line_at_s is not None:
                write(pace.words(ending))
