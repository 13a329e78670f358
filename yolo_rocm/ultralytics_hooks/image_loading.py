"""How an image of Ultralytics' data sets is read: timed, and refused if damaged."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ..data.mosaic import BoundedImages

_TAIL_BYTES: Final = 1 << 16  # cameras append data after the end marker
_JPEG_END: Final = ("JPEG", b"\xff\xd9", "FFD9")
_ENDS: Final = {".jpg": _JPEG_END, ".jpeg": _JPEG_END, ".png": ("PNG", b"IEND", "IEND")}


def truncation(file: str) -> str:
    """Return what is wrong with the end of a JPEG or PNG file, or nothing. cv2 fills the missing part with grey."""
    suffix = os.path.splitext(file)[1].lower()
    if suffix not in _ENDS:
        return ""
    kind, marker, name = _ENDS[suffix]
    with open(file, "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL_BYTES))
        tail = stream.read()
    if not tail:
        return "the file is empty"
    return "" if marker in tail else f"the file is truncated: a {kind} ends with {name}"


class ImageLoader:
    """Takes the place of `load_image` of one data set.

    Args:
        part: The data set.
        spend: Takes a stage and its seconds.
    """

    def __init__(self, part: Any, spend: Callable[[str, float], None]) -> None:
        self._part, self._spend = part, spend
        self._load = part.load_image

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
            if not Path(part.npy_files[index]).exists() and (problem := truncation(part.im_files[index])):
                raise OSError(problem)
            return self._load(index, *args, **kwargs)
        except Exception as error:
            error.image_file = part.im_files[index]  # type: ignore[attr-defined]
            error.image_index = index  # type: ignore[attr-defined]
            raise
        finally:
            part.buffer = buffer
            self._spend("load", time.monotonic() - started)
