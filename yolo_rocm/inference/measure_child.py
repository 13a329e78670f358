"""`python -m yolo_rocm.inference.measure_child SETTINGS ANSWER`: one way to predict, timed call by call."""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..session.run import run, run_method
from ..session.session import Session
from ..ultralytics_hooks import models
from ..ultralytics_hooks.ncnn_precision import computing_in
from ..utils.child_process import answer_parent
from .ways import Way

_ENOUGH: Final = 8  # objects that make a comparison worth something
_THRESHOLDS: Final = (0.25, 0.1, 0.03, 0.01, 0.001)


def main(settings: dict[str, Any]) -> dict[str, Any]:
    """Measure one way; see `measure.comparison`."""
    folder = Path(settings["folder"])
    images = list(np.load(folder / "images.npz").values())
    batches = [images[i : i + settings["batch"]] for i in range(0, len(images), settings["batch"])]
    way = Way(**settings["way"])
    arguments = {**way.arguments(), "imgsz": settings["imgsz"], "verbose": False, "save": False}
    session = Session(settings["preset"], settings["rocm"])
    with run(session, arguments), computing_in(way.engine, way.dtype):
        import torch  # the preset's variables come first

        from .agreement import agreement, count, objects_on

        yolo = models.load_model(settings["file"], settings["task"])

        def predict(images: list[Any], **more: Any) -> Any:
            return run_method(session, yolo, "predict", yolo.predict, (images,), {**arguments, **more})

        def objects(**more: Any) -> list[Any]:
            return [objects_on(result) for batch in batches for result in predict(batch, **more)]

        began = time.perf_counter()
        predict(batches[0])
        setup_s = time.perf_counter() - began
        conf = settings["conf"]
        for threshold in () if conf else _THRESHOLDS:
            conf, first = threshold, objects(conf=threshold)
            if count(first) >= _ENOUGH or "probs" in first[0]:
                break
        # A runtime with a fixed input pads to a square, others to a multiple of the stride: that is no fault of either.
        if settings["is_reference"]:
            canvases = [objects(conf=conf, rect=True), objects(conf=conf, rect=False)]
            torch.save(canvases, folder / "reference.pt")
            found = canvases[0]
        else:
            canvases = torch.load(folder / "reference.pt", weights_only=True)
            found = objects(conf=conf, rect=True)
        share, score = max((agreement(canvas, found, conf) for canvas in canvases), key=lambda each: each[0])
        times_ms = sorted(_times_ms(lambda batch: predict(batch, conf=conf), batches, settings["seconds"]))
    return {
        "setup_s": setup_s,
        "median_ms": statistics.median(times_ms),
        "p95_ms": times_ms[math.ceil(0.95 * len(times_ms)) - 1],
        "images_per_s": 1000 * len(images) / len(batches) * len(times_ms) / sum(times_ms),
        "agreement": share,
        "objects": count(canvases[0]),
        "score_difference": score,
        "conf": conf,
    }


def _times_ms(predict: Any, batches: list[Any], seconds: float) -> list[float]:
    """Time calls: once over all images, and over and over again while there is time."""
    times: list[float] = []
    while sum(times) < 1000 * seconds or not times:
        for batch in batches:
            began = time.perf_counter()
            predict(batch)
            times.append(1000 * (time.perf_counter() - began))
    return times


if __name__ == "__main__":
    answer_parent(main)
