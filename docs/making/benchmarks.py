"""Benchmarks from the CSV files that `yolo-rocm bench` writes, with date, hardware, versions and command."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from yolo_rocm.bench.conv import AUTO, PLAIN, VENDOR, VENDOR_OFF, Row, totals
from yolo_rocm.bench.layers import OURS

from .markdown import code, table
from .training_steps import is_of_training_steps, part

# What says where a number comes from; shown once above a table where it is the same in all of its rows.
PROVENANCE: Final = (
    "note", "device", "machine", "cores", "load", "python", "torch", "ultralytics", "triton", "ncnn", "onnxruntime",
    "openvino", "yolo_rocm", "layout", "batch", "imgsz", "images", "dtype", "date", "command",
)  # fmt: skip
SUMS: Final = "h200-conv-sums.csv"
_NAME: Final = re.compile(r"conv-(?P<model>[^-]+)-(?P<dtype>\w+)-(?P<layout>\w+)-b(?P<batch>\d+)-(?P<imgsz>\d+)")


@dataclass(frozen=True)
class ConvSums:
    """Sums over all convolutions of one training step, milliseconds by way.

    Attributes:
        model: The model's name.
        what: Data type, layout, batch and image size.
        engine: What `auto` chose from.
        ways: Milliseconds by way, as `bench conv` names them.
        stamp: Device, torch, date and command.
        file: The file they are from.
    """

    model: str
    what: dict[str, str]
    engine: str
    ways: dict[str, float]
    stamp: dict[str, str]
    file: str


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def conv_sums(folder: Path) -> list[ConvSums]:
    """Return the sums of every `conv-*.csv`."""
    return [_sums_of(path) for path in sorted(folder.glob("conv-*.csv"))]


def _sums_of(path: Path) -> ConvSums:
    rows = read(path)
    measured = [
        Row(
            row["layer"],
            int(row["count"]),
            row["problem"],
            row["pass"],
            row["way"],
            float(row["milliseconds"]),
            float(row["workspace_mb"]) if row["workspace_mb"] else None,
        )
        for row in rows
    ]
    named = _NAME.match(path.name)
    what = named.groupdict() if named else {"model": path.stem.removeprefix("conv-")}
    stamp = {key: rows[0][key] for key in ("device", "torch", "yolo_rocm", "date", "command")}
    engine = re.search(r"\bengine=([\w+]+)", stamp["command"])
    ways = {way: passes["sum"] for way, passes in totals(measured).items()}
    model = what.pop("model")
    return ConvSums(model, what, engine[1] if engine else OURS, ways, stamp, path.name)


def tables(folder: Path) -> str:
    """Return every benchmark: convolutions by device, torch and date, training steps, all other files as they are."""
    parts = _conv_parts(conv_sums(folder))
    others = [path for path in sorted(folder.glob("*.csv")) if not path.name.startswith("conv-")]
    for path in sorted(others, key=is_of_training_steps, reverse=True):
        if is_of_training_steps(path):
            parts += part(path, read(path))
        else:
            parts += [f"## {_title(path.stem)}", *_plain(path)]
    return "\n\n".join(parts)


def _title(stem: str) -> str:
    words = stem.replace("-", " ").replace("_", " ")
    return words[:1].upper() + words[1:]


def _conv_parts(found: Sequence[ConvSums]) -> list[str]:
    groups: dict[tuple[str, str, str], list[ConvSums]] = {}
    for sums in found:
        groups.setdefault((sums.stamp["device"], sums.stamp["torch"], sums.stamp["date"]), []).append(sums)
    heads = (
        "model", "dtype", "layout", "batch", "imgsz", "vendor", "vendor off", "plain patch", "`engine`", "ours",
        "to vendor", "command",
    )  # fmt: skip
    parts = []
    for (device, torch, date), members in groups.items():
        rows = []
        for sums in members:
            shape = (sums.what.get(key, "") for key in ("dtype", "layout", "batch", "imgsz"))
            ways = (_milliseconds(sums.ways.get(way)) for way in (VENDOR, VENDOR_OFF, PLAIN))
            ours, vendor = sums.ways.get(AUTO), sums.ways.get(VENDOR)
            ratio = f"{ours / vendor:.2f}x" if ours and vendor else "-"
            command = f"[{sums.file}](benchmarks/{sums.file}): {code(sums.stamp['command'])}"
            rows.append((sums.model, *shape, *ways, code(sums.engine), _milliseconds(ours), ratio, command))
        parts += [
            f"## Convolutions: {device}, torch {torch}, {date}",
            "Milliseconds for all convolutions of one training step (forward, grad-input, grad-weight).",
            table(heads, rows),
        ]
    return parts


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _plain(path: Path) -> list[str]:
    """Return a file as a table; what is the same in all rows and says where they come from is above it."""
    rows = read(path)
    shared = {key: rows[0][key] for key in PROVENANCE if key in rows[0] and len({row[key] for row in rows}) == 1}
    shown_once = [
        f"{key.replace('_', ' ')}: {_worded(key, value)}" for key, value in shared.items() if key != "note" and value
    ]
    columns = [key for key in rows[0] if key not in shared and any(row[key] for row in rows)]
    lines = [shared["note"]] if shared.get("note") else []
    lines.append("; ".join([*shown_once, f"file: [{path.name}](benchmarks/{path.name})"]) + ".")
    shown = ([_worded(key, row[key]) for key in columns] for row in rows)
    return [*lines, table([key.replace("_", " ") for key in columns], shown)]


def _worded(key: str, value: str) -> str:
    if key == "command":
        return code(value)
    if key in PROVENANCE or not re.fullmatch(r"-?\d+\.\d{4,}(e-?\d+)?", value):
        return value
    return f"{float(value):.4g}" if abs(float(value)) < 1000 else f"{float(value):.0f}"


def is_amd(device: str) -> bool:
    """Return whether a device is a card of AMD, by its name."""
    return bool(re.search(r"\b(AMD|Radeon|Instinct)\b|gfx\d", device, re.IGNORECASE))


def any_amd(folder: Path) -> bool:
    """Return whether anything was measured on a card of AMD."""
    return any(is_amd(row.get("device", "")) for path in folder.glob("*.csv") for row in read(path))


def picture_rows(folder: Path) -> tuple[list[tuple[str, Mapping[str, float]]], str]:
    """Return (model and data type, milliseconds by way) for the picture, and where they come from.

    It is about cuDNN and us, so of NVIDIA cards. Measurements of single layers go before the sums of an earlier run of
    the same model, data type, layout and batch, where both have the same way.
    """
    old = read(folder / SUMS)
    found: dict[tuple[str, str], dict[str, float]] = {}
    sources: dict[str, None] = {}
    for row in old:
        names = {VENDOR: "vendor_ms", "gemm": "gemm_ms", PLAIN: "unfold_matmul_ms"}
        found[row["model"], row["dtype"]] = {way: float(row[column]) for way, column in names.items()}
        sources[f"{row['device']}, torch {row['torch']}, {row['date']}"] = None
    for sums in conv_sums(folder):
        shape = (sums.what.get("layout"), sums.what.get("batch"))
        if shape == (old[0]["layout"], old[0]["batch"]) and "NVIDIA" in sums.stamp["device"]:
            ways = found.setdefault((sums.model, sums.what["dtype"]), {})
            ways.update({way: sums.ways[way] for way in (VENDOR, PLAIN) if way in sums.ways})
            ways[sums.engine] = sums.ways[AUTO]
            version = ".".join(sums.stamp["torch"].split(".")[:2])  # as the sums have it
            sources[f"{sums.stamp['device']}, torch {version}, {sums.stamp['date']}"] = None
    return [(" ".join(key), ways) for key, ways in found.items()], "; ".join(sources)
