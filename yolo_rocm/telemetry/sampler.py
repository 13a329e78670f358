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
# Seconds after which a driver that has not answered by the end of a training is reported.
HANGS_S: Final = 5.0
_MEAN_OF: Final = 32
# Half of what may pass at the end of a training.
_LAST_WAIT_S: Final = 0.1


class Sampler:
    """Fills a table from a daemon thread until it is stopped.

    The thread measures the processor time of each look and stretches the interval until the share is below `BUDGET`.
    Processor time, not the clock's: most of a look is waiting for the interpreter, which the training has meanwhile.

    Args:
        sources: What is read; one that raises is a gap.
        table: Where rows go; closed with the thread.
        interval_s: Seconds between looks, at least.
        log: Called with a line: why there are no more rows, or that rows are lost.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        table: TelemetryTable,
        interval_s: float = 1.0,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._sources, self._table, self._shortest_s, self._log = sources, table, interval_s, log
        self._reading_since: float | None = None
        self._loss_is_reported = False
        self._ended = threading.Event()
        # Held while the table is used: it is closed by stop(), so that a thread that was left behind writes no more.
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="yolo_rocm telemetry", daemon=True)
        self.looks = 0
        self.cost_s = 0.0  # processor time of a look, on average

    @property
    def interval_s(self) -> float:
        """Seconds until the next look."""
        return max(self._shortest_s, self.cost_s / BUDGET) * self._table.stretch

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, at once or after a moment: a thread that hangs in a driver is left behind. Safe to call twice."""
        self._ended.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_LAST_WAIT_S)
            since = self._reading_since
            silent = 0.0 if since is None else time.monotonic() - since
            if self._thread.is_alive() and silent >= HANGS_S:
                self._report(f"telemetry has no values of the last {silent:.0f} s: a driver does not answer")
        if self._writing.acquire(timeout=_LAST_WAIT_S / 2):
            try:
                self._table.close()
            finally:
                self._writing.release()

    def _run(self) -> None:
        try:
            self._look()  # a short training gets a row too
            while not self._ended.wait(self.interval_s):
                before = time.thread_time()
                self._look()
                # The first look is left out: it warms up files. A mean, because some clocks tick slowly.
                self.looks += 1
                self.cost_s += (time.thread_time() - before - self.cost_s) / min(self.looks, _MEAN_OF)
        except Exception as error:  # a training goes on without it
            if not self._ended.is_set():
                self._report(f"telemetry has ended, training goes on: {type(error).__name__}: {error}")
        finally:
            with self._writing:
                self._table.close()

    def _look(self) -> None:
        self._reading_since = time.monotonic()
        readings = {source.name: _read(source) for source in self._sources}
        self._reading_since = None
        names = [name for name, reading in readings.items() if reading != Reading()]
        with self._writing:
            self._table.add(time.monotonic(), merged(readings.values()), "+".join(names))
        if self._table.lost and not self._loss_is_reported:
            self._loss_is_reported = True
            self._report(f"rows of {self._table.path} are lost, training goes on: {self._table.lost}")

    def _report(self, line: str) -> None:
        with suppress(Exception):
            self._log(line)


def _read(source: Source) -> Reading:
    try:
        return source.read()
    except Exception:
        return Reading()
