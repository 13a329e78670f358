"""The only module that knows Ultralytics' data sets and transforms from inside; it runs in loading workers too."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import torch

from ..data.augment import Recorded
from ..data.decode import full_size, jpeg_size, reduced_flag, reduction
from ..data.mosaic import BoundedImages
from ..data.reader import Place, PlainAdapter
from ..errors import StackError
from .probes import BENCH_LOADER, DAMAGED_IMAGES, DEVICE_AUGMENT, REDUCED_DECODE, missing

# What a worker imports before it is told which data set to read.
MODULES: Final = (
    "torch",
    "cv2",
    "yolo_rocm.data.worker",
    "yolo_rocm.ultralytics_hooks.datasets",
    "ultralytics.data.dataset",
)
AUGMENT_KEY: Final = "rocm_augment"
_SHARED: Final = ("labels", "im_files", "label_files", "npy_files")
_GAINS: Final = "rocm_gains"
_FLIPS: Final = {"horizontal": "rocm_left_right", "vertical": "rocm_up_down"}


@dataclass(frozen=True)
class UltralyticsAdapter(PlainAdapter):
    """Reads data sets of Ultralytics.

    Attributes:
        device_augment: Leave HSV and flips to the device; the worker only draws their parameters.
        reduced_decode: Decode JPEGs much larger than imgsz at a half, a quarter or an eighth of their size.
        mosaic_mb: Memory of one worker for the images that mosaics are made of; None as Ultralytics has it.
    """

    device_augment: bool = False
    reduced_decode: bool = False
    mosaic_mb: int | None = None

    def lists(self, dataset: Any) -> Mapping[str, list[Any]]:
        """Return labels and file names, which are never changed while workers live."""
        found = {}
        for number, part in enumerate(_parts(dataset)):
            for name in _SHARED:
                if isinstance(getattr(part, name, None), list):
                    found[f"{number}.{name}"] = getattr(part, name)
        base = getattr(dataset, "base", None)  # classification wraps an ImageFolder
        if isinstance(getattr(dataset, "samples", None), list) and not getattr(dataset, "cache_ram", False):
            found["samples"] = dataset.samples
        for name in ("samples", "imgs", "targets"):
            if isinstance(getattr(base, name, None), list):
                found[f"base.{name}"] = getattr(base, name)
        return found

    def image_bytes(self, dataset: Any) -> int:
        """Return the bytes of one square image; 0 for classification, whose size only its transforms know."""
        part = next(_parts(dataset))
        size = getattr(part, "imgsz", None)
        if size is None:
            return 0
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
        bounded = None
        if self.mosaic_mb is not None and getattr(part, "augment", False) and getattr(part, "cache", None) != "ram":
            bounded = BoundedImages(part.ims, self.mosaic_mb << 20)
            undo.callback(setattr, part, "ims", bounded.images)
            part.ims = bounded
        loader = _ImageLoader(part, spend, self.reduced_decode, bounded)
        part.load_image = loader
        undo.callback(delattr, part, "load_image")
        if self.device_augment:
            for compose, position, stand_in in list(_recorders(part)):
                undo.callback(_put, compose, position, compose.transforms[position])
                compose.transforms[position] = stand_in

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

    def memory(self, dataset: Any) -> list[list[int]]:
        """Return which images mosaics can be made of now, by part of the data set."""
        return [[int(index) for index in getattr(part, "buffer", ())] for part in _parts(dataset)]

    def remember(self, dataset: Any, memory: list[list[int]]) -> None:
        """Read the images again that mosaics could be made of."""
        for part, indices in zip(_parts(dataset), memory, strict=True):
            if indices:
                part.buffer = []
                for index in indices:
                    part.load_image(index)
                part.buffer = list(indices)

    def name_of(self, dataset: Any, index: Any, error: BaseException) -> str:
        """Name the file that could not be read: of the sample, or of another image of its mosaic."""
        named = getattr(error, "image_file", None)
        if named is not None:
            return str(named)
        samples = getattr(dataset, "samples", None)
        files = getattr(dataset, "im_files", None)
        if files is not None:
            return str(files[index])
        return str(samples[index][0]) if samples is not None else f"sample {index}"

    def finish(self, batch: Any) -> Any:
        """Collect the drawn parameters of augmentations that the device will apply."""
        if not isinstance(batch, dict) or _GAINS not in batch:
            return batch
        drawn = batch.pop(_GAINS)
        count = len(drawn)
        gains = None if drawn[0] is None else torch.from_numpy(np.stack(drawn))
        flips = [torch.tensor(batch.pop(key, [False] * count), dtype=torch.bool) for key in _FLIPS.values()]
        batch[AUGMENT_KEY] = Recorded(gains, *flips)
        return batch


def _put(compose: Any, position: int, transform: Any) -> None:
    compose.transforms[position] = transform


def _parts(dataset: Any) -> Iterator[Any]:
    """Yield the data sets inside a concatenation, or the data set itself."""
    inner = getattr(dataset, "datasets", None)
    if inner is None:
        yield dataset
        return
    for part in inner:
        yield from _parts(part)


class PlaneFormatter:
    """Takes the place of `Format._format_img`: the same tensor, written once, into the batch it belongs to."""

    def __init__(self, formatter: Any, place: Place) -> None:
        self._formatter, self._place = formatter, place

    def agrees(self) -> bool:
        """Try whether this Ultralytics formats images as this class does."""
        original = getattr(self._formatter, "_format_img", None)
        if original is None:
            return False
        picture = np.arange(80, dtype=np.uint8).reshape(4, 5, 4)
        pictures = [np.ascontiguousarray(picture[..., :channels]) for channels in (1, 3, 4)]
        views = [view for one in pictures for view in (one, np.fliplr(one), np.flipud(one), one[..., 0])]
        before = random.getstate()
        mine = PlaneFormatter(self._formatter, lambda shape: np.empty(shape, np.uint8))
        try:
            for seed, image in enumerate(views * 2):
                random.seed(seed)
                wanted, after = original(image), random.random()
                random.seed(seed)
                if not torch.equal(mine(image), wanted) or random.random() != after:
                    return False
            return True
        except Exception:  # an image that this version refuses
            return False
        finally:
            random.setstate(before)

    def __call__(self, image: Any) -> torch.Tensor:
        """Return the image as (channels, height, width), red first unless the formatter draws otherwise."""
        if image.ndim < 3:
            image = image[..., None]
        reverse = random.uniform(0, 1) > self._formatter.bgr and image.shape[2] == 3
        planes = self._place((image.shape[2], *image.shape[:2]))
        order = [planes[i] for i in range(len(planes))]
        cv2.split(_forward(image), order[::-1] if reverse else order)
        return torch.from_numpy(planes)


def _forward(image: Any) -> Any:
    """Return the image in an order of memory that cv2 reads without a slower copy of its own."""
    if image.strides[1] < 0:
        image = cv2.flip(_forward(image[:, ::-1]), 1)
    elif image.strides[0] < 0:
        image = cv2.flip(image[::-1], 0)
    return np.ascontiguousarray(image) if image.ndim == 3 else image[..., None]


class _ImageLoader:
    """Takes the place of `load_image` of one data set: times it, refuses truncated files, names broken ones."""

    def __init__(
        self, part: Any, spend: Callable[[str, float], None], reduced: bool, bounded: BoundedImages | None
    ) -> None:
        self._part, self._spend, self._bounded = part, spend, bounded
        self._load = part.load_image
        self._reduced = reduced and not missing(REDUCED_DECODE) and bool(getattr(part, "augment", False))

    def __call__(self, index: int, *args: Any, **kwargs: Any) -> Any:
        """Load an image as the data set does."""
        part = self._part
        if part.ims[index] is not None:
            return self._load(index, *args, **kwargs)
        started = time.monotonic()
        try:
            if self._bounded is not None and self._bounded.dropped(index):
                # Its place among the mosaic's images was kept, its pixels were not: read them again.
                return self._read_again(index, *args, **kwargs)
            return self._read(index, *args, **kwargs)
        except Exception as error:
            error.image_file = part.im_files[index]  # type: ignore[attr-defined]
            error.image_index = index  # type: ignore[attr-defined]
            part.buffer = [other for other in part.buffer if other != index]
            raise
        finally:
            self._spend("load", time.monotonic() - started)

    def _read(self, index: int, *args: Any, **kwargs: Any) -> Any:
        part = self._part
        file = part.im_files[index]
        problem = truncation(file)
        if problem and not Path(part.npy_files[index]).exists():
            raise OSError(problem)
        if not self._reduced:
            return self._load(index, *args, **kwargs)
        stored = None if Path(part.npy_files[index]).exists() else jpeg_size(file)
        factor = 1
        if stored is not None:
            wanted = max(part.imgsz) if isinstance(part.imgsz, (tuple, list)) else part.imgsz
            factor = reduction(*stored, wanted, short_side=not _fits_long_side(*args, **kwargs))
        flag = reduced_flag(part.cv2_flag, factor)
        if stored is None or factor == 1 or flag is None:
            return self._load(index, *args, **kwargs)
        before, part.cv2_flag = part.cv2_flag, flag
        try:
            image, decoded, resized = self._load(index, *args, **kwargs)
        finally:
            part.cv2_flag = before
        original = full_size(stored, decoded, factor)
        if part.im_hw0[index] is not None:
            part.im_hw0[index] = original
        return image, original, resized

    def _read_again(self, index: int, *args: Any, **kwargs: Any) -> Any:
        part = self._part
        buffer, part.buffer = part.buffer, []  # the data set must not count it as another image
        try:
            return self._read(index, *args, **kwargs)
        finally:
            part.buffer = buffer


def _fits_long_side(rect_mode: bool = True, resize_short: bool = False) -> bool:
    """Tell whether `load_image`, called so, makes the longer side as long as imgsz."""
    return rect_mode and not resize_short


def truncation(file: str) -> str:
    """Return what is wrong with the end of a JPEG or PNG file, or nothing. cv2 fills the missing part with grey."""
    suffix = os.path.splitext(file)[1].lower()
    if suffix not in (".jpg", ".jpeg", ".png"):
        return ""
    with open(file, "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        if size == 0:
            return "the file is empty"
        stream.seek(max(0, size - 12))
        tail = stream.read()
        if suffix == ".png":
            return "" if b"IEND" in tail else "the file is truncated: a PNG ends with IEND"
        if tail.endswith(b"\xff\xd9"):
            return ""
        # Cameras append data after the end marker; look further back before calling it damaged.
        stream.seek(max(0, size - (1 << 16)))
        return "" if b"\xff\xd9" in stream.read() else "the file is truncated: a JPEG ends with FFD9"


def _recorders(part: Any) -> Iterator[tuple[Any, int, Any]]:
    """Yield (compose, position, stand-in) for each augmentation the device will do instead."""
    from ultralytics.data import augment

    if not device_augment_possible(part):
        return
    for position, transform in enumerate(part.transforms.transforms):
        if type(transform) is augment.RandomHSV:
            yield part.transforms, position, _RecordHSV(transform)
        elif type(transform) is augment.RandomFlip:
            yield part.transforms, position, _recording_flip(transform)


def device_augment_possible(dataset: Any) -> bool:
    """Probe: can HSV and flips of this data set be left to the device?"""
    from ultralytics.data import augment

    compose = getattr(dataset, "transforms", None)
    if missing(DEVICE_AUGMENT) or not getattr(dataset, "augment", False):
        return False
    formatter = getattr(compose, "transforms", [None])[-1]
    kinds = [type(transform) for transform in getattr(compose, "transforms", [])]
    return augment.RandomHSV in kinds and getattr(dataset, "channels", 3) == 3 and not getattr(formatter, "bgr", 0.0)


class _RecordHSV:
    """Draws what RandomHSV would draw and leaves the pixels alone."""

    def __init__(self, transform: Any) -> None:
        self._gains = (transform.hgain, transform.sgain, transform.vgain)

    def __call__(self, labels: dict[str, Any]) -> dict[str, Any]:
        labels[_GAINS] = np.random.uniform(-1, 1, 3) * self._gains if any(self._gains) else None
        return labels


def _recording_flip(transform: Any) -> Any:
    from ultralytics.data.augment import RandomFlip

    class RecordFlip(RandomFlip):  # type: ignore[misc]
        """Flips the boxes and leaves the pixels to the device."""

        def apply_image(self, labels: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
            labels[_FLIPS[params["direction"]]] = bool(params["flip"])
            return labels

    return RecordFlip(p=transform.p, direction=transform.direction, flip_idx=transform.flip_idx)


def training_data(data: str, imgsz: int, batch: int, images: int | None = None) -> Any:
    """Build the training data set of a detection task as a trainer does.

    Args:
        data: A data set's YAML.
        imgsz: Size of the images.
        batch: Size of the batches.
        images: Pretend that there are so many images, by repeating the list of those there are.
    """
    if missing(BENCH_LOADER):
        raise StackError(f"this Ultralytics cannot be measured: {'. '.join(missing(BENCH_LOADER))}.")
    from ultralytics.cfg import get_cfg
    from ultralytics.data.build import build_yolo_dataset
    from ultralytics.data.utils import check_det_dataset

    described = check_det_dataset(data)
    cfg = get_cfg(overrides={"task": "detect", "imgsz": imgsz, "batch": batch})
    dataset = build_yolo_dataset(cfg, described["train"], batch, described, mode="train")
    if images is not None and images > len(dataset.labels):
        _repeat(dataset, images)
    return dataset


def _repeat(dataset: Any, count: int) -> None:
    have = len(dataset.labels)
    order = [i % have for i in range(count)]
    # Copies, as reading them from disk would make: lists that share their items pickle to next to nothing.
    labels = [{k: v.copy() if hasattr(v, "copy") else v for k, v in dataset.labels[i].items()} for i in order]
    dataset.labels, dataset.ni = labels, count
    for name in ("im_files", "npy_files", "label_files"):
        if isinstance(getattr(dataset, name, None), list):
            setattr(dataset, name, [getattr(dataset, name)[i] for i in order])
    dataset.ims, dataset.im_hw0, dataset.im_hw = [None] * count, [None] * count, [None] * count


def training_loader(dataset: Any, batch: int, workers: int, policy: Any = None) -> Any:
    """Build a training loader as a trainer does: Ultralytics' own, or one that follows a policy."""
    from ultralytics.data.build import build_dataloader

    from . import loaders_built_by

    with loaders_built_by(policy):
        return build_dataloader(dataset, batch, workers, shuffle=True)
