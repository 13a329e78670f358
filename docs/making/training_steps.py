"""Whole training steps from the CSV files that `yolo-rocm bench train` writes, in the tables that it prints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from .markdown import code, table

_NAME: Final = re.compile(r"train-(?P<model>.+)-(?P<precision>amp|fp32)-b(?P<batch>\d+)-(?P<imgsz>\d+)")
# Columns of the files, each with its head and its decimals.
_TIME: Final = (
    ("step_ms", "step", 1), ("fastest_ms", "fastest", 1), ("slowest_ms", "slowest", 1), ("to_stock", "to stock", 3),
    ("busy_ms", "busy", 1), ("waited_ms", "waited", 1), ("convolution_ms", "convolution", 1),
    ("normalisation_ms", "normalisation", 1), ("activation_ms", "activation", 1), ("loss_ms", "loss", 1),
    ("optimizer_ms", "optimizer", 1), ("other_ms", "other", 1),
)  # fmt: skip
_MEMORY: Final = (
    ("peak_mb", "peak", 0), ("memory_to_stock", "to stock", 3), ("requested_mb", "requested", 0),
    ("requested_to_stock", "to stock", 3), ("reserved_mb", "reserved", 0), ("reserved_to_stock", "to stock", 3),
)  # fmt: skip


def is_of_training_steps(path: Path) -> bool:
    """Return whether a file is one that `bench train` has written, by its name."""
    return _NAME.fullmatch(path.stem) is not None


def part(path: Path, rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a file as a heading, where it comes from, tables of time and of memory, and what is said of single ways.

    Args:
        path: The file; `is_of_training_steps` holds.
        rows: What is in it.
    """
    named = _NAME.fullmatch(path.stem)
    assert named is not None
    precision = "AMP" if named["precision"] == "amp" else named["precision"]
    first = rows[0]
    stamp = "; ".join(f"{key}: {first[key]}" for key in ("device", "torch", "ultralytics", "date"))
    lines = [
        f"## Training steps: {named['model']}, {precision}, batch {named['batch']}, {named['imgsz']} px",
        *([first["note"]] if first.get("note") else []),
        f"{stamp}; command: {code(first['command'])}; file: [{path.name}](benchmarks/{path.name}).",
        "Milliseconds of a step, and of the GPU by what they were for. \\*: what the preset runs.",
        _table(rows, _TIME),
    ]
    if any(row["peak_mb"] for row in rows):
        lines += ["Memory in MB.", _table(rows, _MEMORY)]
    said = [f"- {row['way']}: {'; '.join(words)}" for row in rows if (words := _said(row))]
    if any("not reached yet" in words for words in said):
        lines.append("What computed the layers. Not reached: layers that only inference uses, as `dfl.conv`.")
    return [*lines, *(["\n".join(said)] if said else [])]


def _table(rows: Sequence[Mapping[str, str]], columns: Sequence[tuple[str, str, int]]) -> str:
    shown = ([_name(row), *(_rounded(row[key], digits) for key, _, digits in columns)] for row in rows)
    return table(["way", *(head for _, head, _ in columns)], shown)


def _name(row: Mapping[str, str]) -> str:
    marks = [" \\*" if row["of_preset"] == "True" else "", " (wrong)" if row["wrong"] == "True" else ""]
    return f"{row['way']}{''.join(marks)}"


def _rounded(value: str, digits: int) -> str:
    return f"{float(value):.{digits}f}" if value else "-"


def _said(row: Mapping[str, str]) -> list[str]:
    """Return what a way has failed by, what computed it, and whether steps are missing from it."""
    overflows = row["overflows"]
    left_out = f"{overflows} steps overflowed" if overflows not in ("", "0") else ""
    served = row["served"] if row["step_ms"] else ""  # what has not run says how many shapes it knew
    return [words for words in (row["error"], served, left_out) if words]
