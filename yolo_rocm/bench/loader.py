"""Loaders beside each other: Ultralytics' own and ours, each in a fresh process, one after the other."""

from __future__ import annotations

import csv
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._version import __version__
from ..errors import ConfigError

STAGES = ("read", "decode", "augment", "collate", "transfer")
BASE = "stock spawn"
_TIMEOUT = 900


def ways(
    data: str,
    workers: int,
    context: str,
    imgsz: int,
    batch: int,
    epochs: int,
    images: int | None = None,
    batches: int | None = None,
) -> dict[str, dict[str, Any]]:
    """Return what to measure by name.

    Args:
        data: A detection data set's YAML.
        workers: Worker processes.
        context: `spawn`, `forkserver`, `fork`, or `all`, for ours. Stock is measured with fork and spawn.
        imgsz: Size of the images.
        batch: Size of the batches.
        epochs: Epochs to time, after one that warms up.
        images: Pretend that there are so many images.
        batches: Read no more than so many batches of each epoch.
    """
    methods = ("spawn", "forkserver", "fork") if context == "all" else (context,)
    common = {
        "data": str(data), "workers": workers, "imgsz": imgsz, "batch": batch, "epochs": epochs, "images": images,
        "batches": batches, "ours": False, "options": False, "context": None,
    }  # fmt: skip
    found = {"stock workers=0": {**common, "workers": 0, "stages": True}}
    if workers:
        found["stock fork"] = {**common, "context": "fork"}
        found[BASE] = {**common, "context": "spawn"}
    ours = {**common, "ours": True}
    found["ours workers=0"] = {**ours, "workers": 0, "stages": True}
    for method in methods if workers else ():
        found[f"ours {method}"] = {**ours, "context": method}
        if method == "forkserver":
            found["ours forkserver, started ahead"] = {**ours, "context": method, "ahead": 5.0}
    optional = {**ours, "options": True, "context": methods[0]}
    found["ours, device augment + reduced decode"] = optional
    found["the same, workers=0"] = {**optional, "workers": 0, "stages": True}
    return found


def bench_loader(
    wanted: dict[str, dict[str, Any]], progress: Callable[[int, int], None] | None = None
) -> list[dict[str, Any]]:
    """Measure each way in a process of its own and return one row for each; a way that fails has an `error`."""
    rows = []
    if progress is not None:
        progress(0, len(wanted))
    for done, (name, way) in enumerate(wanted.items()):
        rows.append({"way": name, **_run(way)})
        if progress is not None:
            progress(done + 1, len(wanted))
    return rows


def _run(way: dict[str, Any]) -> dict[str, Any]:
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(part for part in (os.environ.get("PYTHONPATH"), package) if part)
    command = [sys.executable, "-m", "yolo_rocm.bench.loader_child", json.dumps(way)]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT, env={**os.environ, "PYTHONPATH": path}
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_TIMEOUT} s"}
    for line in reversed(ended.stdout.splitlines()):
        if line.startswith("{"):
            note = "workers aborted when the loader was closed" if "terminate called" in ended.stderr else ""
            return {**json.loads(line), "note": note}
    last = [line for line in ended.stderr.splitlines() if line.strip()][-1:] or ["no output"]
    if "No such file" in ended.stderr or "does not exist" in ended.stderr:
        raise ConfigError(f"the data set cannot be read: {last[0]}")
    return {"error": last[0][:200]}


def write_csv(path: Path, rows: list[dict[str, Any]], command: str) -> None:
    """Write every row with what it was measured on."""
    stamp = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "yolo_rocm": __version__,
        "date": datetime.date.today().isoformat(),
        "command": command,
    }
    columns = list(dict.fromkeys(key for row in rows for key in row))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*columns, *stamp])
        writer.writeheader()
        writer.writerows({**row, **stamp} for row in rows)


def plot(path: Path, rows: list[dict[str, Any]], title: str) -> None:
    """Draw time to the first batch, images per second and private memory, one bar per way."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = (("first_batch_s", "first batch, s"), ("images_per_s", "images/s"), ("private_mb", "private MB a worker"))
    figure, axes = plt.subplots(1, 3, figsize=(11, 0.45 * len(rows) + 1.2), sharey=True, layout="constrained")
    names = [row["way"] for row in rows]
    for axis, (key, label) in zip(axes, panels, strict=True):
        values = [row.get(key) or 0.0 for row in rows]
        axis.barh(names, values, color=["0.6" if name.startswith("stock") else "tab:red" for name in names])
        axis.set(xlabel=label)
        for name, value in zip(names, values, strict=True):
            if value:
                axis.annotate(f" {value:.3g}", (value, name), va="center", fontsize=8)
        axis.set_xlim(0, 1.25 * max(values, default=1.0) or 1.0)
    axes[0].invert_yaxis()
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    plt.close(figure)
