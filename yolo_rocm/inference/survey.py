"""All ways to predict, measured one after the other on the same images: for `bench predict` and for `auto`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ExportError
from .exported import exported
from .measure import LIMIT_S, Measured, Trial, keep_images, measure, reference
from .ways import BASE, Way


def survey(
    weights: Path,
    task: str,
    images: Sequence[Any],
    ways: Sequence[Way],
    *,
    imgsz: Any,
    batch: int = 1,
    seconds: float = 10.0,
    preset: Any = "auto",
    rocm: Mapping[str, Any] | None = None,
    limit_s: float = LIMIT_S,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Measured]:
    """Measure ways to predict; torch in fp32 on the CPU is always the first row, and what the others are held against.

    Args:
        weights: The weights.
        task: Their task.
        images: Arrays in BGR.
        ways: What to measure.
        imgsz: Image size.
        batch: Images a call.
        seconds: For how long calls of each are timed, at most.
        preset: What torch runs under.
        rocm: Sections over it.
        limit_s: Seconds after which a way has failed; an export has its own limit.
        progress: Called with (ways done, all ways).

    Raises:
        ConfigError: The weights or the images cannot be used.
    """
    others = [way for way in ways if way != BASE]
    total = len(others) + 1
    rows: list[Measured] = []

    with tempfile.TemporaryDirectory(prefix="yolo-rocm-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "images").mkdir()
        keep_images(images, folder / "images")
        trial = Trial(weights, task, imgsz, batch, folder / "images", folder, None, seconds, preset, rocm)
        progress(0, total)
        trial, first = reference(trial)
        rows.append(first)
        for way in others:
            progress(len(rows), total)
            rows.append(_one(trial, way, limit_s))
        progress(total, total)
    return rows


def _one(trial: Trial, way: Way, limit_s: float) -> Measured:
    file, export_s = trial.weights, 0.0
    if way.format:
        try:
            made = exported(trial.weights, way.format, way.export_arguments(trial.imgsz))
        except ExportError as error:
            return Measured(way, error=str(error))
        file, export_s = made.file, made.seconds
    return replace(measure(trial, way, file, limit_s), export_s=export_s)


def fastest(rows: Sequence[Measured], among: Sequence[Way]) -> Measured | None:
    """Return what is used of some ways: the fastest call, by its median, of those that agree with the reference.

    One slow call among many, as on a busy machine, decides nothing.
    """
    agreeing = [row for row in rows if row.way in among and row.agrees and row.median_ms is not None]
    return min(agreeing, key=lambda row: row.median_ms or 0.0, default=None)
