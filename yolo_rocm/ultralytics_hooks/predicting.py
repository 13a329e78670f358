"""Prediction and export by Ultralytics: images of a source, models in other formats, and what a model is for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError
from ..utils.error_text import first_line
from .arguments import check_source
from .models import load_model
from .probes import VULKAN, missing

_LEAST_STRIDE: Final = 32  # AutoBackend's, for weights


def first_images(source: Any, most: int) -> list[Any]:
    """Return the first images of a source as arrays in BGR, as Ultralytics reads them.

    Args:
        source: Anything that `predict` takes.
        most: How many, at most. Of a camera or a network stream none is taken: it would be lost to the caller.

    Raises:
        ConfigError: The source is missing, or holds nothing that can be read.
    """
    if type(source).__module__.partition(".")[0] in ("numpy", "PIL"):
        source = [source]
    check_source(source)
    if _is_live(source):
        return []
    from ultralytics.data.build import load_inference_source

    try:
        batches = load_inference_source(source, batch=1)
        found = list(itertools.islice((image for _, images, _ in batches for image in images), most))
    except FileNotFoundError as error:
        what = first_line(error).partition(" Supported formats")[0].rstrip(".")
        raise ConfigError(f"{what}. Give source= images, a folder of them, or a video.") from error
    if not found:
        raise ConfigError(f"source {str(source)!r} holds no image that can be read. Give source= other images.")
    return found


def _is_live(source: Any) -> bool:
    name = str(source).lower()
    live = isinstance(source, str | int | Path) and (
        name.isnumeric() or name.startswith(("rtsp://", "rtmp://", "tcp://", "screen")) or name.endswith(".streams")
    )
    return live or not isinstance(source, str | Path | list | tuple)


def sample_images() -> str:
    """Return the folder of the photographs that Ultralytics carries."""
    from ultralytics.utils import ASSETS

    return str(ASSETS)


def size_of(yolo: Any, given: Any = None) -> Any:
    """Return the image size that a model predicts with, rounded as for weights: exported files round by their own rule.

    Args:
        yolo: The YOLO object.
        given: `imgsz`, where the user gave it.
    """
    size = given or yolo.overrides.get("imgsz") or 640
    sizes = list(size) if isinstance(size, list | tuple) else [size]
    found = getattr(yolo.model, "stride", 32)  # SAM has a number in the place of a tensor
    found = found.flatten().tolist() if hasattr(found, "flatten") else found
    stride = max([_LEAST_STRIDE, *map(int, found if isinstance(found, list | tuple) else [found])])
    if not all(isinstance(each, int) for each in sizes):
        return size
    rounded = [-(-each // stride) * stride for each in sizes]
    return rounded if isinstance(size, list | tuple) else rounded[0]


def weights_of(yolo: Any) -> Path | None:
    """Return the file a YOLO object's weights come from; None where it has none, or is no torch model."""
    file = Path(str(getattr(yolo, "ckpt_path", None) or "")).absolute()
    return file if file.suffix == ".pt" and file.is_file() else None


def export_weights(weights: Path, format: str, arguments: dict[str, Any]) -> Path:
    """Let Ultralytics export weights; return the file or folder it has written."""
    with _padded_as_weights():
        # A graph is the same wherever it is traced, and the CPU needs no vendor library.
        return Path(load_model(weights).export(format=format, **{"device": "cpu", **arguments}))


@contextmanager
def _padded_as_weights() -> Iterator[None]:
    """Let exported files have images padded as their weights have: to a multiple of 32 at least.

    Ultralytics writes a smaller stride of a model into the file as it is, and pads for the file by that alone.
    """
    from ultralytics.engine.exporter import Exporter

    def write(exporter: Any, facts: dict[str, Any]) -> None:
        vars(exporter)["metadata"] = {**facts, "stride": max(_LEAST_STRIDE, facts["stride"])}

    Exporter.metadata = property(lambda exporter: vars(exporter)["metadata"], write)
    try:
        yield
    finally:
        del Exporter.metadata


def takes_vulkan() -> bool:
    """Return whether the installed Ultralytics can let ncnn use a GPU."""
    return not missing(VULKAN)
