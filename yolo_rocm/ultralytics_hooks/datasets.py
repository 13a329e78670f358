"""Ultralytics' data sets as loading workers see them: what they share, how they are read, how samples are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ..data.mosaic import BoundedImages
from ..data.reader import Place, PlainAdapter
from .image_format import PlaneFormatter
from .image_loading import ImageLoader
from .probes import DAMAGED_IMAGES, missing

# What a worker imports before it is told which data set to read.
MODULES: Final = (
    "torch",
    "cv2",
    "yolo_rocm.data.worker",
    "yolo_rocm.ultralytics_hooks.datasets",
    "ultralytics.data.dataset",
)
_SHARED: Final = ("labels", "im_files", "label_files", "npy_files")


@dataclass(frozen=True)
class UltralyticsAdapter(PlainAdapter):
    """Reads data sets of Ultralytics.

    Attributes:
        mosaic_mb: Memory of one worker for the images that mosaics are made of; None as Ultralytics has it.
    """

    mosaic_mb: int | None = None

    def lists(self, dataset: Any) -> Mapping[str, list[Any]]:
        """Return labels, file names and images kept in memory: none changes while workers live."""
        found = {f"{i}.{name}": getattr(part, name, None) for i, part in enumerate(_parts(dataset)) for name in _SHARED}
        # cache=ram: a copy of all images in each worker would fill the memory; newer versions share them themselves.
        found |= {f"{i}.ims": part.ims for i, part in enumerate(_parts(dataset)) if getattr(part, "cache", "") == "ram"}
        base = getattr(dataset, "base", None)  # classification wraps an ImageFolder
        found |= {f"base.{name}": getattr(base, name, None) for name in ("samples", "imgs", "targets")}
        if not getattr(dataset, "cache_ram", False):
            found["samples"] = getattr(dataset, "samples", None)
        return {name: value for name, value in found.items() if isinstance(value, list)}

    def image_bytes(self, dataset: Any) -> int:
        """Return the bytes of one square image; 0 for classification, whose size only its transforms know."""
        part = next(_parts(dataset))
        size = getattr(part, "imgsz", None) or 0
        height, width = size if isinstance(size, (tuple, list)) else (size, size)
        return int(height) * int(width) * int(getattr(part, "channels", 3))

    @contextmanager
    def attached(self, dataset: Any, spend: Callable[[str, float], None], place: Place) -> Iterator[None]:
        """Watch the images being loaded, and apply the options; the data set is put back at the end."""
        with ExitStack() as undo:
            for part in _parts(dataset):
                if hasattr(part, "load_image") and not missing(DAMAGED_IMAGES):
                    self._attach(part, spend, undo)
                formatter = getattr(getattr(part, "transforms", None), "transforms", [None])[-1]
                planes = PlaneFormatter(formatter, place)
                if planes.agrees():
                    formatter._format_img = planes
                    undo.callback(delattr, formatter, "_format_img")
            yield

    def _attach(self, part: Any, spend: Callable[[str, float], None], undo: ExitStack) -> None:
        if self.mosaic_mb is not None and getattr(part, "augment", False) and getattr(part, "cache", None) != "ram":
            undo.callback(_put_back_images, part, part.ims)
            part.ims = BoundedImages(part.ims, self.mosaic_mb << 20)
        part.load_image = ImageLoader(part, spend)
        undo.callback(delattr, part, "load_image")

    def begin_batch(self, dataset: Any, indices: Sequence[Any], strict: bool) -> None:
        """Forget the images of earlier batches if asked: mosaics are then made of this batch's images only."""
        if not strict:
            return
        parts = list(_parts(dataset))
        for part in parts:
            buffer = getattr(part, "buffer", None)
            if buffer is None or getattr(part, "cache", None) == "ram":
                continue
            for index in set(buffer):
                part.ims[index] = part.im_hw0[index] = part.im_hw[index] = None
            part.buffer = [int(index) for index in indices] if len(parts) == 1 else []

    def name_of(self, dataset: Any, index: Any, error: BaseException) -> str:
        """Name the file that could not be read: of the sample, or of another image of its mosaic."""
        named = getattr(error, "image_file", None)
        if named is not None:
            return str(named)
        if getattr(dataset, "im_files", None) is not None:
            return str(dataset.im_files[index])
        samples = getattr(dataset, "samples", None)
        return str(samples[index][0]) if samples is not None else f"sample {index}"


def _put_back_images(part: Any, images: list[Any]) -> None:
    images[:] = part.ims
    part.ims = images


def _parts(dataset: Any) -> Iterator[Any]:
    """Yield the data sets inside a concatenation, or the data set itself."""
    inner = getattr(dataset, "datasets", None)
    if inner is None:
        yield dataset
        return
    for part in inner:
        yield from _parts(part)
