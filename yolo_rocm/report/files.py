"""Reading what a training left behind: a missing, half-written or strange file becomes a remark, not an error."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TextIO

from ..utils.error_text import typed_line
from ..utils.limited_files import parse_yaml
from .words import counted

# Nothing a training writes comes near it; a larger file is not ours, and would only fill the memory.
_LARGEST: Final = 512 * 2**20


class Reader:
    """Reads the files of one run folder.

    Attributes:
        folder: The folder.
        remarks: What was missing or could not be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remarks: list[str] = []

    def json(self, name: str, loses: str) -> dict[str, Any]:
        """Return the object in a JSON file; empty where there is none."""
        return self._object(name, loses, json.loads)

    def yaml(self, name: str, loses: str) -> dict[str, Any]:
        """Return the mapping in a YAML file; empty where there is none."""
        return self._object(name, loses, parse_yaml)

    def _object(self, name: str, loses: str, parse: Callable[[str], Any]) -> dict[str, Any]:
        parsed = self._parsed(name, loses, lambda file: [parse(file.read())])
        for found in parsed or ():
            if not isinstance(found, dict):
                self.remarks.append(f"{name} holds a {type(found).__name__} instead of a mapping: {loses}")
            return mapping(found)
        return {}

    def table(self, name: str, loses: str) -> tuple[list[str], list[list[str]]]:
        """Return the columns and the whole rows of a CSV file. A row that was being written at the end is left out."""
        lines: list[str] = self._parsed(name, loses, list, errors="replace")
        if lines is None:
            return [], []
        # A number cut short would still read as a number.
        half = bool(lines) and not lines[-1].endswith(("\n", "\r"))
        try:
            rows = list(csv.reader(line.replace("\0", "") for line in lines[: len(lines) - half]))
        except csv.Error as error:
            self.remarks.append(f"{name} cannot be read ({_one_line(error)}): {loses}")
            return [], []
        if not rows:
            self.remarks.append(f"{name} is empty: {loses}")
            return [], []
        columns = [cell.strip() for cell in rows[0]]
        whole = [row for row in rows[1:] if len(row) == len(columns)]
        broken = sum(1 for row in rows[1:] if row) - len(whole) + half
        if broken > 0:
            self.remarks.append(f"{name} has {counted(broken, 'half-written line')}, left out")
        if not whole:
            self.remarks.append(f"{name} has no whole line: {loses}")
        return columns, whole

    def _parsed(self, name: str, loses: str, parse: Callable[[TextIO], Any], errors: str = "strict") -> Any:
        """Return what is in a file; None, and a remark, where it is missing or cannot be read."""
        try:
            with (self.folder / name).open(newline="", encoding="utf-8", errors=errors) as file:
                size = os.fstat(file.fileno()).st_size
                if size > _LARGEST:
                    raise ValueError(f"{size / 2**20:.0f} MiB")
                return parse(file)
        except FileNotFoundError:
            self.remarks.append(f"{name} is missing: {loses}")
        except (OSError, ValueError, RecursionError) as error:
            self.remarks.append(f"{name} cannot be read ({_one_line(error)}): {loses}")
        return None


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


def _one_line(error: Exception) -> str:
    return typed_line(error)
