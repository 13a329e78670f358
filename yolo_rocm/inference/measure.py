"""Ways to predict, each measured in a process of its own and compared with torch in fp32 on the CPU."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

import numpy as np

from ..errors import ConfigError, ExportError
from ..utils.child_process import run_module
from .exported import exported
from .ways import BASE, Way

AGREES: Final = 0.99  # share of objects that must be the same for a way to be chosen
LIMIT_S: Final = 300.0
_CHILD: Final = "yolo_rocm.inference.measure_child"


@dataclass(frozen=True)
class Measured:
    """What a way has shown.

    Attributes:
        way: The way.
        setup_s: Seconds to load the model and predict the first images.
        median_ms: Milliseconds of a call, with pre- and post-processing.
        p95_ms: What 95 of 100 calls stay below.
        images_per_s: Images a second.
        export_s: Seconds until there was an exported model.
        agreement: Of all objects, those that it and torch's fp32 result on the CPU have both; NaN where there are none.
        objects: How many that reference has.
        score_difference: Largest difference between scores of the same object.
        conf: Score from which objects were reported.
        error: Why there is nothing of the above.
    """

    way: Way
    setup_s: float | None = None
    median_ms: float | None = None
    p95_ms: float | None = None
    images_per_s: float | None = None
    export_s: float = 0.0
    agreement: float = math.nan
    objects: int = 0
    score_difference: float = 0.0
    conf: float | None = None
    error: str = ""

    @property
    def agrees(self) -> bool:
        """Whether its result is that of the reference; never where there was nothing to compare."""
        return not self.error and self.agreement >= AGREES


Measure = Callable[[Way, Path], Measured]


@contextmanager
def comparison(
    weights: Path,
    task: str,
    images: Sequence[Any],
    *,
    imgsz: Any,
    batch: int = 1,
    seconds: float = 0.0,
    conf: float | None = None,
    limit_s: float = LIMIT_S,
    preset: Any = "auto",
    rocm: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Measured, Measure]]:
    """Measure torch in fp32 on the CPU, without anything of ours, and yield it with what measures another way.

    Args:
        weights: The weights.
        task: Their task.
        images: Arrays in BGR.
        imgsz: Image size.
        batch: Images a call.
        seconds: For how long calls of each are timed, at most.
        conf: Score from which objects are reported; by default the first one with which there are some.
        limit_s: Seconds after which a way has failed.
        preset: What torch runs under where it is no reference.
        rocm: Sections over it.

    Raises:
        ConfigError: The weights cannot predict these images.
    """
    with tempfile.TemporaryDirectory(prefix="yolo-rocm-", ignore_cleanup_errors=True) as folder:
        np.savez(Path(folder) / "images.npz", *images)  # as arrays: decoding is not what is measured
        given = {"task": task, "imgsz": imgsz, "batch": batch, "seconds": seconds, "folder": folder, "conf": conf}
        given |= {"preset": str(preset) if isinstance(preset, Path) else preset, "rocm": dict(rocm or {})}

        def run(way: Way, file: Path, is_reference: bool) -> Measured:
            settings = {**given, "way": asdict(way), "file": str(file), "is_reference": is_reference}
            # The reference is torch as it comes.
            result = run_module(_CHILD, settings, limit_s, {"YOLO_ROCM": "0"} if is_reference else None)
            return Measured(way, error=result.error) if result.error else Measured(way, **result.answer)

        reference = run(BASE, weights, is_reference=True)
        if reference.error:
            raise ConfigError(f"{weights.name} cannot predict these images on the CPU: {reference.error}")
        given["conf"] = reference.conf
        yield reference, lambda way, file: run(way, file, is_reference=False)


def survey(
    weights: Path,
    task: str,
    images: Sequence[Any],
    ways: Sequence[Way],
    *,
    imgsz: Any,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **settings: Any,
) -> list[Measured]:
    """Measure ways to predict one after the other; the reference is always the first row.

    Args:
        weights: The weights.
        task: Their task.
        images: Arrays in BGR.
        ways: What to measure.
        imgsz: Image size.
        progress: Called with (ways done, all ways).
        **settings: More of `comparison`.

    Raises:
        ConfigError: The weights cannot predict these images.
    """
    others = [way for way in ways if way != BASE]
    progress(0, len(others) + 1)
    with comparison(weights, task, images, imgsz=imgsz, **settings) as (reference, measure):
        rows = [reference]
        for way in others:
            progress(len(rows), len(others) + 1)
            began = monotonic()
            try:
                file = exported(weights, way.format, way.export_arguments(imgsz)) if way.format else weights
            except ExportError as error:
                rows.append(Measured(way, error=str(error)))
                continue
            export_s = monotonic() - began
            rows.append(replace(measure(way, file), export_s=export_s))
    progress(len(rows), len(rows))
    return rows


def fastest(rows: Sequence[Measured], among: Sequence[Way]) -> Measured | None:
    """Return what is used of some ways: the fastest call, by its median, of those that agree with the reference.

    One slow call among many, as on a busy machine, decides nothing.
    """
    agreeing = [row for row in rows if row.way in among and row.agrees]
    return min(agreeing, key=lambda row: row.median_ms or 0.0, default=None)
