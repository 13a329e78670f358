"""`python -m yolo_rocm.inference.measure_child SETTINGS ANSWER`: one way to predict, timed call by call."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from ..ultralytics_hooks import models, ncnn_precision
from ..utils.child_process import answer_parent
from .predictions import Found, found_on, objects_in, save
from .ways import Way

ENOUGH: Final = 8  # objects that make a comparison worth something
_LOWER: Final = (0.25, 0.1, 0.03, 0.01, 0.001)


def main(settings: dict[str, Any]) -> dict[str, Any]:
    """Measure one way; see `measure` for the settings and the answer."""
    import numpy as np

    images = [np.load(path) for path in sorted(Path(settings["images"]).glob("*.npy"))]
    batches = [images[i : i + settings["batch"]] for i in range(0, len(images), settings["batch"])]
    way = Way(settings["engine"], settings["device"], settings["dtype"])
    with _set_up(settings, way) as predict:
        before = _memory_mb()
        began = time.perf_counter()
        predict(batches[0], conf=settings["conf"] or _LOWER[0])
        setup = time.perf_counter() - began
        conf = settings["conf"] or _enough(predict, batches)
        for canvas, file in settings["found"].items():
            found = [found_on(r) for batch in batches for r in predict(batch, conf=conf, rect=canvas == "rect")]
            save(Path(file), found)
        times, counts = _timed(predict, batches, settings["seconds"], conf)
    times_ms = sorted(1000 * seconds for seconds in times)
    return {
        "setup_s": setup,
        "median_ms": statistics.median(times_ms),
        "p95_ms": times_ms[max(0, math.ceil(0.95 * len(times_ms)) - 1)],
        "images_per_s": counts / sum(times),
        "memory_mb": max(0.0, _memory_mb() - before),
        "gpu_mb": _gpu_mb(way),
        "conf": conf,
    }


@contextmanager
def _set_up(settings: dict[str, Any], way: Way) -> Iterator[Any]:
    """Yield what predicts a list of images."""
    from ..session.run import run, run_method
    from ..session.session import Session

    arguments = {**way.arguments(), "imgsz": settings["imgsz"], "verbose": False, "save": False}
    with ExitStack() as held:
        session = Session(settings["preset"], settings["rocm"])
        held.enter_context(run(session, arguments))
        if way.engine == "ncnn":
            held.enter_context(ncnn_precision.ncnn_computes_in(way.dtype == "fp16"))
        yolo = models.load_model(settings["file"], settings["task"])

        def predict(images: list[Any], **more: Any) -> Any:
            return run_method(session, yolo, "predict", yolo.predict, (images,), {**arguments, **more})

        yield predict


def _enough(predict: Any, batches: list[Any]) -> float:
    """Return the highest threshold with which there is enough to compare, or the lowest."""
    for conf in _LOWER:
        found: list[Found] = [found_on(result) for batch in batches for result in predict(batch, conf=conf)]
        if objects_in(found) >= ENOUGH or "probs" in found[0]:
            break
    return conf


def _timed(predict: Any, batches: list[Any], seconds: float, conf: float) -> tuple[list[float], int]:
    """Time calls, at least once over all images, and over again while there is time; return how many images too."""
    times: list[float] = []
    images = 0
    while not times or sum(times) < seconds:
        for batch in batches:
            began = time.perf_counter()
            predict(batch, conf=conf)
            times.append(time.perf_counter() - began)
            images += len(batch)
            if len(times) >= len(batches) and sum(times) >= seconds:
                break
    return times, images


def _memory_mb() -> float:
    """Return the peak of this process's memory so far, MiB."""
    if sys.platform == "win32":
        import psutil

        return float(psutil.Process().memory_info().peak_wset / 2**20)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak / 2**20 if sys.platform == "darwin" else peak / 2**10)


def _gpu_mb(way: Way) -> float | None:
    import torch

    on_gpu = way.device.startswith("cuda") and torch.cuda.is_available()
    return torch.cuda.max_memory_reserved(int(way.device.partition(":")[2])) / 2**20 if on_gpu else None


if __name__ == "__main__":
    answer_parent(main)
