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
_MOST_DOUBLINGS: Final = 20


class TelemetryTable:
    """A CSV file that grows by a row at a time. What cannot be written is lost, never an error.

    Args:
        folder: The run's folder.
        fresh: Begin anew; otherwise go on after the rows of an earlier part of the same run, in its columns.

    Attributes:
        path: The file.
        rows: How many it has.
        lost: Why a row could not be written, for the first that could not.
    """

    def __init__(self, folder: Path, fresh: bool) -> None:
        self.path = folder / TELEMETRY_FILE
        self._descriptor: int | None = None
        self._columns: tuple[str, ...] = COLUMNS
        self.rows = 0
        self.lost: str | None = None
        try:
            before = b"" if fresh or not self.path.exists() else self.path.read_bytes()
            whole = before.rfind(b"\n") + 1  # a run that was killed may have left half a row
            self.rows = max(0, before.count(b"\n") - 1)
            # No buffer: a worker forked in mid-write would write the rows in it once more.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._descriptor = os.open(self.path, flags, 0o644)
            os.ftruncate(self._descriptor, whole)
            if whole:  # of an earlier version perhaps, with fewer columns
                self._columns = tuple(before.partition(b"\n")[0].decode(errors="replace").strip().split(","))
            else:
                self._write(",".join(COLUMNS) + "\n")
        except OSError as error:
            self.lost = str(error)
            self.close()

    @property
    def stretch(self) -> int:
        """By how much the interval is to be longer now than at the beginning."""
        doublings: int = min(self.rows // ROWS_PER_INTERVAL, _MOST_DOUBLINGS)
        return 1 << doublings

    def add(self, time: float, reading: Reading, source: str) -> None:
        """Append a row."""
        cells = {"time": f"{time:.3f}", "source": source}
        for name in FIELDS:
            value = getattr(reading, name)
            cells[name] = "" if value is None else f"{value:.1f}".removesuffix(".0")
        self._write(",".join(cells.get(name, "") for name in self._columns) + "\n")
        self.rows += 1

    def _write(self, line: str) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, line.encode())
        except OSError as error:  # a full disk may have room again when checkpoints have been cleared
            self.lost = self.lost or str(error)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
