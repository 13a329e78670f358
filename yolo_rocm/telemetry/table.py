"""The table next to the results: a row at a time, written at once, and bounded for a training of days."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from .reading import FIELDS, Reading

TELEMETRY_FILE: Final = "rocm_telemetry.csv"
COLUMNS: Final = ("time", *FIELDS, "source")
# Every so many rows the interval doubles. At one row a second that is an hour and eight minutes in full detail, and
# about 30 000 rows, 2 MB, after a week. Nothing is ever rewritten: a run that is killed loses no row, and one that is
# resumed goes on with the interval that the rows already there ask for.
ROWS_PER_INTERVAL: Final = 4096


class TelemetryTable:
    """A CSV file that grows by a row at a time.

    Args:
        folder: The run's folder.
        fresh: Begin anew; otherwise go on after the rows of an earlier part of the same run.

    Attributes:
        rows: How many it has.
    """

    def __init__(self, folder: Path, fresh: bool) -> None:
        path = folder / TELEMETRY_FILE
        before = b"" if fresh or not path.exists() else path.read_bytes()
        self.rows = max(0, before.count(b"\n") - 1)
        # No buffer: a worker forked in mid-write would write the rows in it once more.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(path, flags, 0o644)
        os.ftruncate(self._descriptor, before.rfind(b"\n") + 1)  # a run that was killed may have left half a row
        if b"\n" not in before:
            self._write(COLUMNS)

    @property
    def stretch(self) -> int:
        """By how much the interval is to be longer now than at the beginning."""
        return 1 << (self.rows // ROWS_PER_INTERVAL)

    def add(self, time: float, reading: Reading, source: str) -> None:
        """Append a row."""
        values = [getattr(reading, name) for name in FIELDS]
        cells = ["" if value is None else f"{value:.1f}".removesuffix(".0") for value in values]
        self._write((f"{time:.3f}", *cells, source))
        self.rows += 1

    def _write(self, cells: tuple[str, ...]) -> None:
        os.write(self._descriptor, f"{','.join(cells)}\n".encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
