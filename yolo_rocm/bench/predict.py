"""`yolo-rocm bench predict`: every installed way to predict, on every device, held against what torch finds."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..hardware import detect
from ..inference.measure import Measured
from ..inference.survey import fastest, survey
from ..inference.ways import AUTO, candidates, check_engine, ways
from ..preset.resolve import resolve
from ..ultralytics_hooks import models, predicting, versions
from . import results
from .checks import check, loaded


@dataclass(frozen=True)
class Survey:
    """What a benchmark of prediction has found.

    Attributes:
        rows: One for each way.
        chosen: The name of what `engine=auto` would choose of them; empty where none agrees.
        images: How many images were predicted.
        imgsz: Their size.
        task: The model's task.
        load: How many processes wanted a core when it began, on average; None where the system does not say.
    """

    rows: tuple[Measured, ...]
    chosen: str
    images: int
    imgsz: Any
    task: str
    load: float | None = None

    def table(self) -> list[dict[str, Any]]:
        """Return plain data, one dictionary for each way."""
        return [_plain(row, self.chosen) for row in self.rows]


def bench_predict(
    model: Any,
    *,
    imgsz: Any = None,
    batch: int = 1,
    source: Any = None,
    images: int = 32,
    seconds: float = 10.0,
    limit_s: float = 600.0,
    engines: str | None = None,
    device: Any = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Survey:
    """Measure every way to predict that is installed here.

    Args:
        model: Weights.
        imgsz: Image size; that of the training by default.
        batch: Images a call.
        source: Images, a folder or a video; two photographs of Ultralytics by default.
        images: How many of them, at most.
        seconds: For how long calls of each way are timed, at most.
        limit_s: Seconds after which a way has failed.
        engines: Only these, separated by commas.
        device: Only ways on this device.
        progress: Called with (ways done, all ways).

    Raises:
        ConfigError: The model or the images cannot be used.
        EngineError: One of `engines` cannot be used here.
    """
    check({"batch": batch, "images": images, "seconds": seconds, "limit_s": limit_s})
    for side in imgsz if isinstance(imgsz, list | tuple) else [imgsz]:
        check({"imgsz": side}, optional=("imgsz",))
    versions.require()
    yolo = loaded(models.load_model, model)
    weights = predicting.weights_of(yolo)
    if weights is None:
        raise ConfigError(f"bench predict needs the weights of a model, a .pt file; got {str(model)!r}.")
    found = predicting.first_images(source or predicting.sample_images(), images)
    machine = detect()
    wanted = None if engines is None else [check_engine(word.strip(), machine) for word in str(engines).split(",")]
    size = predicting.size_of(yolo, imgsz)
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    rows = survey(
        weights,
        yolo.task,
        found,
        ways(machine, wanted, device),
        imgsz=size,
        batch=batch,
        seconds=seconds,
        limit_s=limit_s,
        progress=progress,
    )
    engines_of_auto = resolve("auto", machine=machine).preset.predict.engines
    best = fastest(rows, candidates(machine, AUTO, engines_of_auto, device))
    return Survey(tuple(rows), best.way.name if best is not None else "", len(found), size, yolo.task, load)


def _plain(row: Measured, chosen: str) -> dict[str, Any]:
    compared = row.agreement
    return {
        "way": row.way.name,
        "engine": row.way.engine,
        "device": row.way.device,
        "dtype": row.way.dtype,
        "export_s": row.export_s,
        "setup_s": _rounded(row.setup_s, 2),
        "median_ms": _rounded(row.median_ms, 2),
        "p95_ms": _rounded(row.p95_ms, 2),
        "images_per_s": _rounded(row.images_per_s, 2),
        "memory_mb": _rounded(row.memory_mb, 0),
        "gpu_mb": _rounded(row.gpu_mb, 0),
        "agreement": None if compared is None else _rounded(compared.share, 4),
        "score_difference": None if compared is None else _rounded(compared.score, 7),
        "objects": None if compared is None else compared.objects,
        "conf": row.conf,
        "auto": row.way.name == chosen,
        "error": row.error,
    }


def _rounded(value: float | None, digits: int) -> float | None:
    """Return a number as it is worth showing; None for what JSON has no word for."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


def write_csv(path: Path, found: Survey, command: str) -> None:
    """Write every row with what it was measured on."""
    machine = detect()
    packages = ("ultralytics", "ncnn", "onnxruntime", "openvino")
    facts = {
        "gpus": "; ".join(str(gpu) for gpu in machine.gpus),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": found.load,
        "torch": machine.torch,
        **{name: machine.packages.version(name) for name in packages},
    }
    results.write_csv(path, found.table(), results.stamp(command, images=found.images, **facts))


def plot(path: Path, found: Survey, title: str) -> None:
    """Draw latency, images a second and agreement, one bar for each way that has run."""
    ran = [row for row in found.table() if not row["error"]]
    panels = (("median_ms", "ms a call", 1), ("images_per_s", "images/s", 1), ("agreement", "agreement", 3))
    results.draw(
        path,
        title,
        [row["way"] for row in ran],
        [results.Panel(label, digits, {key: [row[key] or 0.0 for row in ran]}) for key, label, digits in panels],
    )
