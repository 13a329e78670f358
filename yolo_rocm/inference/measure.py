"""A way to predict, measured: set-up, latency, images a second, memory, and what it has found; in its own process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..errors import ConfigError
from ..utils.child_process import ChildResult, run_module
from .agreement import Agreement, agreement
from .predictions import load
from .ways import Way

CHILD: Final = "yolo_rocm.inference.measure_child"
LIMIT_S: Final = 300.0
CANVASES: Final = ("rect", "square")  # images padded to a multiple of the stride, or to a square


@dataclass(frozen=True)
class Trial:
    """What all ways are given.

    Attributes:
        weights: The weights.
        task: Their task.
        imgsz: Image size.
        batch: Images a call.
        images: Folder of images, each as an array in a file.
        folder: Where what was found is written.
        conf: Score from which objects are reported; None for the first one with which there are some.
        seconds: For how long calls are timed, at most.
        preset: What torch runs under.
        rocm: Sections over it.
    """

    weights: Path
    task: str
    imgsz: Any
    batch: int
    images: Path
    folder: Path
    conf: float | None = None
    seconds: float = 10.0
    preset: Any = "auto"
    rocm: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Measured:
    """What a way has shown.

    Attributes:
        way: The way.
        setup_s: Seconds to load the model and predict the first images.
        median_ms: Milliseconds of a call, with pre- and post-processing.
        p95_ms: What 95 of 100 calls stay below.
        images_per_s: Images a second.
        memory_mb: Peak of the process's memory above that of its imports, MiB.
        gpu_mb: Peak of what torch has taken on the GPU, MiB; None where torch does not compute there.
        export_s: Seconds of the export; 0 where there was none to do.
        agreement: With torch's fp32 result on the CPU; None for that one itself.
        conf: Score from which objects were reported.
        error: Why there is nothing of the above.
    """

    way: Way
    setup_s: float | None = None
    median_ms: float | None = None
    p95_ms: float | None = None
    images_per_s: float | None = None
    memory_mb: float | None = None
    gpu_mb: float | None = None
    export_s: float = 0.0
    agreement: Agreement | None = None
    conf: float | None = None
    error: str = ""

    @property
    def agrees(self) -> bool:
        """Whether its result is that of the reference."""
        return not self.error and self.agreement is not None and self.agreement.agrees


def keep_images(images: Sequence[Any], folder: Path) -> None:
    """Write images for other processes, as arrays: decoding is not what is measured."""
    for index, image in enumerate(images):
        np.save(folder / f"{index:05d}.npy", image)


def reference(trial: Trial) -> tuple[Trial, Measured]:
    """Measure torch in fp32 on the CPU, without anything of ours, and keep what it finds.

    Returns:
        The trial with a score from which there are objects, and the numbers.

    Raises:
        ConfigError: The weights or the images cannot be used.
    """
    ended = _run(trial, Way("torch"), trial.weights, True, LIMIT_S * 4)
    if ended.error:
        raise ConfigError(f"{trial.weights.name} cannot predict these images on the CPU: {ended.error}")
    trial = replace(trial, conf=ended.answer["conf"])
    own = load(_file(trial, "reference-rect"))
    return trial, Measured(Way("torch"), **ended.answer, agreement=agreement(own, own, ended.answer["conf"]))


def measure(trial: Trial, way: Way, file: Path, limit_s: float = LIMIT_S) -> Measured:
    """Measure a way and compare it with the reference.

    Args:
        trial: As `reference` has returned it.
        way: What to measure.
        file: The weights, or the exported model.
        limit_s: Seconds after which it has failed.
    """
    ended = _run(trial, way, file, False, limit_s)
    if ended.error:
        return Measured(way, error=ended.error)
    assert trial.conf is not None
    got = load(_file(trial, way.name))
    # A runtime with a fixed input pads to a square, others to a multiple of the stride: that is no fault of either.
    compared = [agreement(load(_file(trial, f"reference-{canvas}")), got, trial.conf) for canvas in CANVASES]
    return Measured(way, **ended.answer, agreement=max(compared, key=lambda each: each.share))


def _file(trial: Trial, name: str) -> Path:
    return trial.folder / f"{name.replace(' ', '-').replace(':', '')}.npz"


def _run(trial: Trial, way: Way, file: Path, is_reference: bool, limit_s: float) -> ChildResult:
    settings = {
        "engine": way.engine,
        "device": way.device,
        "dtype": way.dtype,
        "file": str(file),
        "task": trial.task,
        "imgsz": trial.imgsz,
        "batch": trial.batch,
        "conf": trial.conf,
        "images": str(trial.images),
        "seconds": trial.seconds,
        "preset": str(trial.preset) if isinstance(trial.preset, Path) else trial.preset,
        "rocm": dict(trial.rocm) if trial.rocm else None,
        "found": {canvas: str(_file(trial, f"reference-{canvas}")) for canvas in CANVASES}
        if is_reference
        else {"rect": str(_file(trial, way.name))},
    }
    # The reference is torch as it comes.
    return run_module(CHILD, settings, limit_s, {"YOLO_ROCM": "0"} if is_reference else None)
