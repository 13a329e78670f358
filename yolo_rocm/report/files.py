"""Reading what a training left behind: a missing, half-written or strange file becomes a remark, not an error."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..utils.error_text import typed_line
from .words import counted


class Reader:
    """Reads the files of one run folder.

    Attributes:
        folder: The folder.
        remarks: What was missing or could not be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remarks: list[str] = []

    def mapping(self, name: str, loses: str, parse: Callable[[Path], Any]) -> dict[str, Any]:
        """Return the mapping in a file of JSON or YAML; empty where there is none."""
        value = self._parsed(name, loses, parse, {})
        if not isinstance(value, dict):
            self.remarks.append(f"{name} holds a {type(value).__name__} instead of a mapping: {loses}")
        return mapping(value)

    def table(self, name: str, loses: str) -> tuple[list[str], list[list[str]]]:
        """Return the columns and the whole rows of a CSV file. A row that was being written at the end is left out."""
        columns, *rows = self._parsed(name, loses, _csv_rows, None) or [[]]
        whole = [row for row in rows if len(row) == len(columns)]
        if broken := len(rows) - len(whole):
            self.remarks.append(f"{name} has {counted(broken, 'half-written line')}, left out")
        if columns and not whole:
            self.remarks.append(f"{name} has no whole line: {loses}")
        return [cell.strip() for cell in columns], whole

    def _parsed(self, name: str, loses: str, parse: Callable[[Path], Any], nothing: Any) -> Any:
        """Return what is in a file; `nothing`, and a remark, where it is missing or cannot be read."""
        try:
            return parse(self.folder / name)
        except FileNotFoundError:
            self.remarks.append(f"{name} is missing: {loses}")
        except (OSError, ValueError, csv.Error) as error:
            self.remarks.append(f"{name} cannot be read ({typed_line(error)}): {loses}")
        return nothing


def _csv_rows(path: Path) -> list[list[str]]:
    """Return the rows of a CSV file; of one without its end, whose last number may be cut short, nothing."""
    text = path.read_text(encoding="utf-8", errors="replace").replace("\0", "")
    whole, _, half = text.rpartition("\n")
    if not whole:
        raise ValueError("empty")
    return [row for row in csv.reader(whole.split("\n")) if row] + ([[]] if half else [])


def number(text: Any) -> float | None:
    """Return a finite number, or None for anything else."""
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def mapping(value: Any) -> dict[str, Any]:
    """Return a mapping; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def rows_of(value: Any) -> list[dict[str, Any]]:
    """Return the mappings in a list; nothing for anything else."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
