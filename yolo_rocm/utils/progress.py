"""Progress with time left, on stderr: a bar on a terminal, a line now and then elsewhere, nothing for short work.

Whoever measures must not be disturbed: with `timed` nothing runs beside the work, and the bar moves only when the work
itself says how far it is. Everything else gets a thread, so that a long step shows that time goes by.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

from .console import console, is_terminal

# Shorter work says nothing.
SHORT_S: Final = 2.0
# Between two lines where there is no terminal.
LINES_S: Final = 5.0
_REDRAW_S: Final = 0.5
_MANY: Final = 12  # steps of which the first two tell nothing
_RECENT: Final = 16  # steps that the estimate rests on: convolutions are measured from the largest to the smallest

Show = Callable[[int, int], None]


class Pace:
    """How far a piece of work is, how long it has taken, and how long the rest is likely to take.

    Args:
        limit_s: Seconds after which the work ends by itself, done or not.
    """

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s = limit_s
        self._began = time.monotonic()
        self._marks: deque[tuple[float, int]] = deque([(0.0, 0)], maxlen=_RECENT)
        self.done = 0
        self.total: int | None = None
        self._spoke: tuple[float, int] | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def reached(self, done: int, total: int) -> None:
        """Take how far the work is."""
        if done != self.done:
            self._marks.append((self.elapsed_s, done))
        self.done, self.total = done, total

    def left_s(self) -> float | None:
        """Return the seconds that are likely to be left, by the speed of the latest steps; None before it shows."""
        # The first step holds what happens once: a start, a compilation.
        (first, before), (last, now) = self._marks[1 if len(self._marks) > 3 else 0], self._marks[-1]
        if self.total is None or now <= before or (self.done < 3 and self.total >= _MANY):
            return None
        elapsed = self.elapsed_s
        left = (last - first) / (now - before) * (self.total - self.done) - (elapsed - last)
        return max(0.0, left if self._limit_s is None else min(left, self._limit_s - elapsed))

    @property
    def is_long(self) -> bool:
        """Tell whether the work has taken, or will take, long enough to be worth a word."""
        return self.elapsed_s + (self.left_s() or 0.0) >= SHORT_S

    def counted(self) -> str:
        """Return how far it is, in words."""
        return f"{self.done} of {self.total}" if self.total else ""

    def words(self) -> str:
        """Return how far it is and what is left."""
        left = self.left_s()
        told = "" if left is None else f"about {duration(left)} left"
        return ", ".join(part for part in (self.counted(), told) if part)

    def line_due(self) -> bool:
        """Tell whether it is time for another line, and take it that one follows: not often, nor without news."""
        now = self.elapsed_s
        if self._spoke is not None:
            since, stood = now - self._spoke[0], self._spoke[1] == self.done
            if since < (6 * LINES_S if stood else LINES_S) or self.done == self.total:
                return False
        self._spoke = now, self.done
        return True

    @property
    def has_spoken(self) -> bool:
        """Tell whether there was a line."""
        return self._spoke is not None


def duration(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def progress(
    title: str,
    *,
    timed: bool = False,
    slow: bool = False,
    limit_s: float | None = None,
    stream: TextIO | None = None,
) -> Iterator[Show]:
    """Show how far a piece of work is while the block runs.

    Args:
        title: What is going on, a few words.
        timed: Something is being measured: no thread, and nothing is drawn but from within a call of the yielded one.
        slow: It is known to take long: say so with the first call, also if that is before the first step.
        limit_s: Seconds after which the work ends by itself.
        stream: Where to write; stderr by default.

    Yields:
        A function to be called with (done, all).
    """
    stream = sys.stderr if stream is None else stream
    if stream is None:  # a program without a console
        yield lambda done, total: None
        return
    shown: _Bar | _Lines = (_Bar if is_terminal(stream) else _Lines)(title, Pace(limit_s), slow, stream)
    lock, ended = threading.Lock(), threading.Event()

    def tell(done: int, total: int) -> None:
        with lock:
            shown.pace.reached(done, total)
            shown.draw()

    def keep_telling() -> None:
        while not ended.wait(SHORT_S if shown.pace.elapsed_s < SHORT_S else _REDRAW_S):
            with lock, suppress(Exception):  # a terminal that goes away must not end the work
                shown.draw()

    thread = None if timed else threading.Thread(target=keep_telling, name="yolo_rocm progress", daemon=True)
    if thread is not None:
        thread.start()
    whole = False
    try:
        yield tell
        whole = True
    finally:
        ended.set()
        if thread is not None:
            thread.join()
        shown.close(whole)


class _Lines:
    """A line at the beginning, one now and then, and one at the end."""

    def __init__(self, title: str, pace: Pace, slow: bool, stream: TextIO) -> None:
        self._title, self.pace, self._slow, self._stream = title, pace, slow, stream

    def draw(self) -> None:
        if (self._slow or self.pace.is_long) and self.pace.line_due():
            self._write(self.pace.words() or "...")

    def close(self, whole: bool) -> None:
        if self.pace.has_spoken:
            after = duration(self.pace.elapsed_s)
            counted = self.pace.counted()
            if whole:
                self._write(f"{counted or 'done'} in {after}")
            else:
                self._write(f"stopped{f' at {counted}' if counted else ''} after {after}")

    def _write(self, words: str) -> None:
        with suppress(OSError, ValueError):  # a pipe that nobody reads any more
            self._stream.write(f"{self._title}: {words}\n")
            self._stream.flush()


class _Bar:
    """A live bar that vanishes at the end."""

    def __init__(self, title: str, pace: Pace, slow: bool, stream: TextIO) -> None:
        self._title, self.pace, self._slow, self._stream = title, pace, slow, stream
        self._bars: Any = None
        self._task: Any = None

    def draw(self) -> None:
        pace = self.pace
        if self._bars is None:
            if not (self._slow or pace.is_long):
                return
            from rich.progress import BarColumn, Progress, TextColumn

            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}")
            # Its own thread stays off: see the beginning of this file.
            own = console(file=self._stream)
            self._bars = Progress(*columns, console=own, auto_refresh=False, transient=True, redirect_stdout=False)
            self._task = self._bars.add_task(self._title, total=None, words="")
            self._bars.start()
        words = ", ".join(part for part in (pace.words(), f"{duration(pace.elapsed_s)} so far") if part)
        self._bars.update(self._task, completed=pace.done, total=pace.total, words=words, refresh=True)

    def close(self, whole: bool) -> None:
        if self._bars is not None:
            self._bars.stop()
