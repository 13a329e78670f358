"""The sampling thread: reads the sources now and then, at a cost that a training cannot notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from .reading import Reading, Source, merged
from .table import TelemetryTable

# Share of a processor's time that reading may take, and so of a step.
BUDGET: Final = 0.005
# Seconds after which a read counts as slow: a driver that is busy or hangs, or an interpreter that a training keeps to
# itself. The latter passes, so it takes several slow reads in a row to pause a source.
SLOW_S: Final = 0.25
_SLOW_LOOKS: Final = 2
# Seconds after which a driver that has not answered by the end of a training is reported.
HANGS_S: Final = 5.0
_LONGEST_PAUSE: Final = 64  # looks
_MEAN_OF: Final = 32
# Half of what may pass at the end of a training.
_LAST_WAIT_S: Final = 0.1


class _Watched:
    """A source that is read less often while it is slow. What it does not have is a gap."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._slow = self._pause = self._skip = 0

    def read(self) -> Reading:
        if self._skip:
            self._skip -= 1
            return Reading()
        began = time.monotonic()
        try:
            reading = self.source.read()
        except Exception:
            reading = Reading()
        self._slow = 0 if time.monotonic() - began < SLOW_S else self._slow + 1
        if self._slow == 0:
            self._pause = 0
        elif self._slow >= _SLOW_LOOKS:
            self._pause = min(_LONGEST_PAUSE, max(1, 2 * self._pause))
            self._skip = self._pause
        return reading


class Sampler:
    """Fills a table from a daemon thread until it is stopped.

    The thread measures the processor time of each look and stretches the interval until the share is below `BUDGET`.
    Processor time, not the clock's: most of a look is waiting for the interpreter, which the training has meanwhile.

    Args:
        open_sources: Called in the thread, since starting a library may block.
        table: Where rows go; closed with the thread.
        interval_s: Seconds between looks, at least.
        say: Called with a line for the log: why there are no more rows, or that rows are lost.
    """

    def __init__(
        self,
        open_sources: Callable[[], Sequence[Source]],
        table: TelemetryTable,
        interval_s: float = 1.0,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._open, self._table, self._asked, self._say = open_sources, table, interval_s, say
        self._said_lost = False
        self._waiting: float | None = None  # since when for a source
        self._ended = threading.Event()
        # Held while the table is used: it is closed by stop(), so that a thread that was left behind writes no more.
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="yolo_rocm telemetry", daemon=True)
        self.looks = 0
        self.cost_s = 0.0  # processor time of a look, on average

    @property
    def interval_s(self) -> float:
        """Seconds until the next look."""
        return max(self._asked, self.cost_s / BUDGET) * self._table.stretch

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, at once or after a moment: a thread that hangs in a driver is left behind. Safe to call twice."""
        self._ended.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_LAST_WAIT_S)
            if self._thread.is_alive() and self._waiting is not None:
                silent = time.monotonic() - self._waiting
                if silent >= HANGS_S:
                    self._tell(f"telemetry has no values of the last {silent:.0f} s: a driver does not answer")
        if self._writing.acquire(timeout=_LAST_WAIT_S / 2):
            try:
                self._table.close()
            finally:
                self._writing.release()

    def _run(self) -> None:
        sources: Sequence[Source] = ()
        try:
            self._waiting = time.monotonic()
            sources = self._open()
            self._sample([_Watched(source) for source in sources])
        except Exception as error:  # a training goes on without it
            why = f"{type(error).__name__}: {error}"
            with self._writing:
                self._table.end(time.monotonic(), why)
            if not self._ended.is_set():
                self._tell(f"telemetry has ended, training goes on: {why}")
        finally:
            with self._writing:
                self._table.close()
            for source in sources:
                with suppress(Exception):
                    source.close()

    def _sample(self, sources: list[_Watched]) -> None:
        self._look(sources)  # a short training gets a row too
        while not self._ended.wait(self.interval_s):
            before = time.thread_time()
            self._look(sources)
            # The first look is left out: it warms up files and libraries. A mean, because some clocks tick slowly.
            self.looks += 1
            self.cost_s += (time.thread_time() - before - self.cost_s) / min(self.looks, _MEAN_OF)

    def _look(self, sources: list[_Watched]) -> None:
        self._waiting = time.monotonic()
        readings = [watched.read() for watched in sources]
        self._waiting = None
        told = [w.source.name for w, reading in zip(sources, readings, strict=True) if reading != Reading()]
        with self._writing:
            self._table.add(time.monotonic(), merged(readings), "+".join(told))
        if self._table.lost and not self._said_lost:
            self._said_lost = True
            self._tell(f"rows of {self._table.path} are lost, training goes on: {self._table.lost}")

    def _tell(self, line: str) -> None:
        with suppress(Exception):
            self._say(line)
