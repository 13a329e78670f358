"""`yolo-rocm bench predict`: every installed way to predict, on every device, held against what torch finds."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError
from ..hardware import detect
from ..inference.measure import Measured, fastest, survey
from ..inference.ways import AUTO, candidates, check_engine, ways
from ..preset.resolve import resolve
from ..ultralytics_hooks import models, predicting, versions
from . import results
from .checks import check, loaded

_DIGITS: Final = {"export_s": 2, "setup_s": 2, "median_ms": 2, "p95_ms": 2, "images_per_s": 2, "agreement": 4}


@dataclass(frozen=True)
class PredictBench:
    """What a benchmark of prediction has found.

    Attributes:
        rows: One for each way.
        chosen: The name of what `engine=auto` would choose of them; empty where none agrees.
        images: How many images were predicted.
        imgsz: Their size.
    """

    rows: tuple[Measured, ...]
    chosen: str
    images: int
    imgsz: Any

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
) -> PredictBench:
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
    arrays = predicting.first_images(source or predicting.sample_images(), images)
    machine = detect()
    names = None if engines is None else [check_engine(word.strip(), machine) for word in str(engines).split(",")]
    given = {"imgsz": predicting.size_of(yolo, imgsz), "batch": batch, "seconds": seconds, "limit_s": limit_s}
    rows = survey(weights, yolo.task, arrays, ways(machine, names, device), progress=progress, **given)
    engines_of_auto = resolve("auto", machine=machine).preset.predict.engines
    best = fastest(rows, candidates(machine, AUTO, engines_of_auto, device))
    return PredictBench(tuple(rows), "" if best is None else best.way.name, len(arrays), given["imgsz"])


def _plain(row: Measured, chosen: str) -> dict[str, Any]:
    """Return a row with numbers as they are worth showing; None for what JSON has no word for."""
    data = {**asdict(row), **asdict(row.way), "way": row.way.name, "auto": row.way.name == chosen}
    for name, digits in _DIGITS.items():
        value = data[name]
        data[name] = round(value, digits) if value is not None and math.isfinite(value) and not row.error else None
    return data


def write_csv(path: Path, found: PredictBench, command: str) -> None:
    """Write every row with what it was measured on."""
    machine = detect()
    facts = {name: machine.packages.version(name) for name in ("ultralytics", "ncnn", "onnxruntime", "openvino")}
    facts |= {"gpus": "; ".join(map(str, machine.gpus)), "machine": platform.machine(), "torch": machine.torch}
    results.write_csv(path, found.table(), results.stamp(command, images=found.images, cores=os.cpu_count(), **facts))


def plot(path: Path, found: PredictBench, title: str) -> None:
    """Draw latency, images a second and agreement, one bar for each way that has run."""
    ran = [row for row in found.table() if not row["error"]]
    panels = (("median_ms", "ms a call", 1), ("images_per_s", "images/s", 1), ("agreement", "agreement", 3))
    results.draw(
        path,
        title,
        [row["way"] for row in ran],
        [results.Panel(label, digits, {key: [row[key] or 0.0 for row in ran]}) for key, label, digits in panels],
    )
