"""How an image of Ultralytics' data sets is read: timed, refused if damaged, at a fraction of its size where asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..data.decode import full_size, jpeg_size, reduced_flag, reduction, truncation
from ..data.mosaic import BoundedImages
from .probes import REDUCED_DECODE, missing


class ImageLoader:
    """Takes the place of `load_image` of one data set.

    Args:
        part: The data set.
        spend: Takes a stage and its seconds.
        reduced: Decode JPEGs much larger than imgsz at a fraction of their size, where images are augmented.
    """

    def __init__(self, part: Any, spend: Callable[[str, float], None], reduced: bool) -> None:
        self._part, self._spend = part, spend
        self._load = part.load_image
        self._reduced = reduced and not missing(REDUCED_DECODE) and bool(getattr(part, "augment", False))

    def __call__(self, index: int, *args: Any, **kwargs: Any) -> Any:
        """Load an image as the data set does; an error names the file."""
        part = self._part
        if part.ims[index] is not None:
            return self._load(index, *args, **kwargs)
        started, buffer = time.monotonic(), part.buffer
        try:
            if isinstance(part.ims, BoundedImages) and index in part.ims.dropped:
                # Its place among the mosaic's images was kept, its pixels were not: it is no further image.
                part.buffer = []
            return self._read(index, *args, **kwargs)
        except Exception as error:
            error.image_file = part.im_files[index]  # type: ignore[attr-defined]
            error.image_index = index  # type: ignore[attr-defined]
            buffer[:] = [other for other in buffer if other != index]
            raise
        finally:
            part.buffer = buffer
            self._spend("load", time.monotonic() - started)

    def _read(self, index: int, *args: Any, **kwargs: Any) -> Any:
        part, file = self._part, self._part.im_files[index]
        stored, factor = None, 1
        if not Path(part.npy_files[index]).exists():
            problem = truncation(file)
            if problem:
                raise OSError(problem)
            stored = jpeg_size(file) if self._reduced else None
        if stored is not None:
            wanted = max(part.imgsz) if isinstance(part.imgsz, (tuple, list)) else part.imgsz
            factor = reduction(*stored, wanted, short_side=not _fits_long_side(*args, **kwargs))
        flag = reduced_flag(part.cv2_flag, factor) if factor > 1 else None
        if stored is None or flag is None:
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


def _fits_long_side(rect_mode: bool = True, resize_short: bool = False) -> bool:
    """Return whether `load_image`, called so, makes the longer side as long as imgsz."""
    return rect_mode and not resize_short
