"""`yolo-rocm bench loader`: Ultralytics' own loaders and ours, each in a fresh process, one after the other."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..utils.child_process import run_module
from . import results
from .checks import check

BASE = "stock spawn"
_TIMEOUT = 900


def ways(data: str, workers: int, context: str, **sizes: int | None) -> dict[str, dict[str, Any]]:
    """Return what to measure by name.

    Args:
        data: A detection data set's YAML.
        workers: Worker processes.
        context: `spawn`, `forkserver`, `fork`, or `all`, for ours. Stock is measured with fork and spawn.
        sizes: `imgsz` and `batch`; `epochs` to time, after one that warms up; `images`, to pretend that there are so
            many; `batches`, to read no more than so many of each epoch.
    """
    check({"workers": workers, **sizes}, optional=("images", "batches"))
    methods = ("spawn", "forkserver", "fork") if context == "all" else (context,)
    common: dict[str, Any] = {"data": data, "workers": workers, **sizes, "ours": False}
    common["context"] = None
    found = {"stock workers=0": {**common, "workers": 0}}
    if workers:
        found["stock fork"] = {**common, "context": "fork"}
        found[BASE] = {**common, "context": "spawn"}
    ours = {**common, "ours": True}
    found["ours workers=0"] = {**ours, "workers": 0}
    for method in methods if workers else ():
        found[f"ours {method}"] = {**ours, "context": method}
        if method == "forkserver":
            found["ours forkserver, started ahead"] = {**ours, "context": method, "ahead": 5.0}
    return found


def bench_loader(wanted: dict[str, dict[str, Any]], progress: Callable[[int, int], None]) -> list[dict[str, Any]]:
    """Measure each way in a process of its own and return one row for each; a way that fails has an `error`."""
    rows: list[dict[str, Any]] = []
    for name, way in wanted.items():
        progress(len(rows), len(wanted))
        rows.append({"way": name, **_run(way)})
    progress(len(rows), len(wanted))
    return rows


def _run(way: dict[str, Any]) -> dict[str, Any]:
    result = run_module("yolo_rocm.bench.loader_child", way, _TIMEOUT)
    if result.answer:
        note = "workers aborted when the loader was closed" if "terminate called" in result.output else ""
        return {**result.answer, "note": note}
    if "No such file" in result.output or "does not exist" in result.output:
        raise ConfigError(f"the data set cannot be read: {result.error}")
    return {"error": result.error}


def write_csv(path: Path, rows: list[dict[str, Any]], command: str) -> None:
    """Write every row with what it was measured on."""
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    results.write_csv(path, rows, results.stamp(command, **machine))


def plot(path: Path, rows: list[dict[str, Any]], title: str) -> None:
    """Draw time to the first batch, images per second and private memory, one bar for each way."""
    panels = (
        ("first_batch_s", "first batch, s", 2),
        ("images_per_s", "images/s", 1),
        ("private_mb", "private MB a worker", 0),
    )
    results.draw(
        path,
        title,
        [row["way"] for row in rows],
        [results.Panel(label, digits, {key: [row.get(key) or 0.0 for row in rows]}) for key, label, digits in panels],
    )
