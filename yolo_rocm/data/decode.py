"""Facts of image files: whether one is whole, and when a JPEG may be decoded at a fraction of its size.

JPEG decoders can leave out the fine half of the frequencies of each 8 x 8 block and give a smaller picture for a
fraction of the work (libjpeg's `scale_denom`, reached through OpenCV's IMREAD_REDUCED flags). The pixels are not those
of decoding in full and resizing, so this is a choice of the user; here are only the facts it needs.
"""

from __future__ import annotations

import os

import cv2
from PIL import Image

# How much larger than wanted a reduced picture must still be. It is resized by linear interpolation afterwards; between
# about 1.0 and 1.1 that second step blurs a picture that has no detail to spare. From 1.25 upwards reducing first is
# nearer to the area average of the full picture than resizing alone (two photos: 45.1 to 43.7 dB, 32.9 to 29.4).
MARGIN = 1.25

_LARGEST_FIRST = (8, 4, 2)
_JPEG_END = ("JPEG", b"\xff\xd9", "FFD9")
_ENDS = {".jpg": _JPEG_END, ".jpeg": _JPEG_END, ".png": ("PNG", b"IEND", "IEND")}
_KINDS = {cv2.IMREAD_COLOR: "COLOR", cv2.IMREAD_GRAYSCALE: "GRAYSCALE"}


def truncation(file: str) -> str:
    """Return what is wrong with the end of a JPEG or PNG file, or nothing. cv2 fills the missing part with grey."""
    suffix = os.path.splitext(file)[1].lower()
    kind, end, words = _ENDS.get(suffix, ("", b"", ""))
    if not kind:
        return ""
    with open(file, "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - (1 << 16)))  # cameras append data after the end marker
        tail = stream.read()
    if not tail:
        return "the file is empty"
    return "" if end in tail else f"the file is truncated: a {kind} ends with {words}"


def jpeg_size(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Return (height, width) as stored in a JPEG's header, before any rotation by EXIF; no pixel is decoded.

    Returns:
        None if the file cannot be read, is no JPEG, or is damaged before its size.
    """
    try:
        with Image.open(path) as image:
            width, height = image.size
            return (height, width) if image.format in ("JPEG", "MPO") and width and height else None
    except Exception:  # Pillow raises whatever the damage leads to
        return None


def reduction(height: int, width: int, wanted: int, *, short_side: bool = False) -> int:
    """Return the largest reduction that leaves a picture comfortably larger than wanted.

    Args:
        height: Height of the full picture.
        width: Width of the full picture.
        wanted: Length to which the side will be resized afterwards.
        short_side: The short side becomes `wanted`, or both do; else the long side.

    Returns:
        1, 2, 4 or 8. Above 1 the reduced side is at least `MARGIN` times `wanted`, so nothing is ever enlarged.
    """
    side = min(height, width) if short_side else max(height, width)
    return next((factor for factor in _LARGEST_FIRST if side >= factor * wanted * MARGIN), 1)


def reduced_flag(flag: int, factor: int) -> int | None:
    """Return the OpenCV flag that reads as `flag` does, reduced by `factor`; None where OpenCV has none."""
    return flag if factor == 1 else getattr(cv2, f"IMREAD_REDUCED_{_KINDS.get(flag)}_{factor}", None)


def full_size(stored: tuple[int, int], decoded: tuple[int, int], factor: int) -> tuple[int, int]:
    """Return (height, width) that decoding in full would have given, rotated as EXIF rotated the reduced picture.

    Args:
        stored: From `jpeg_size`.
        decoded: (height, width) of the reduced picture.
        factor: Its reduction; decoders round sizes up.

    Raises:
        ValueError: The reduced picture does not belong to that size.
    """
    for height, width in (stored, stored[::-1]):
        if (-(-height // factor), -(-width // factor)) == decoded:
            return height, width
    raise ValueError(
        f"a picture of {stored[0]} x {stored[1]} reduced by {factor} cannot be {decoded[0]} x {decoded[1]}"
    )
