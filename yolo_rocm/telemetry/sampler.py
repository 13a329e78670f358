"""The sampling thread: reads the sources now and then, at a cost that a training cannot notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from .reading import Reading, Source, merged
from .sources import sources_for
from .table import TelemetryTable

# What may pass at the end of a training.
_LAST_WAIT_S: Final = 0.1


class Sampler:
    """Fills a table from a daemon thread until it is stopped.

    Args:
        sources: What is read; one that raises is a gap.
        table: Where rows go; closed by the thread.
        interval_s: Seconds between looks; longer as the table grows.
        log: Called with a line if there are no more rows.
    """

    def __init__(
        self, sources: Sequence[Source], table: TelemetryTable, interval_s: float, log: Callable[[str], None]
    ) -> None:
        self._sources, self._table, self._interval_s, self._log = sources, table, interval_s, log
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="yolo_rocm telemetry", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, at once or after a moment: a thread that hangs in a driver is left behind. Safe to call twice."""
        self._ended.set()
        self._thread.join(_LAST_WAIT_S)

    def _run(self) -> None:
        try:
            self._look()  # a short training gets a row too
            while not self._ended.wait(self._interval_s * self._table.stretch):
                self._look()
        except Exception as error:  # a training goes on without it
            self._log(f"telemetry has ended, training goes on: {type(error).__name__}: {error}")
        finally:
            self._table.close()

    def _look(self) -> None:
        readings = {source.name: _read(source) for source in self._sources}
        if self._ended.is_set() and self._table.rows:  # a driver has held it for longer than the training went on
            return
        names = [name for name, reading in readings.items() if reading != Reading()]
        self._table.add(time.monotonic(), merged(readings.values()), "+".join(names))


def _read(source: Source) -> Reading:
    try:
        return source.read()
    except Exception:
        return Reading()


def watch(device: Any, folder: Path, *, fresh: bool, interval_s: float, log: Callable[[str], None]) -> Sampler:
    """Fill the table of a run from now on, until the returned sampler is stopped.

    Args:
        device: The torch device of the training; of several processes, that of the first.
        folder: The run's folder.
        fresh: Begin the table anew; a resumed run goes on with it.
        interval_s: Seconds between two rows, at least.
        log: Called with a line if there is no more to come before that.
    """
    sampler = Sampler(sources_for(device), TelemetryTable(folder, fresh), interval_s, log)
    sampler.start()
    return sampler
