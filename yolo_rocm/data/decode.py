"""Facts of image files: whether one is whole, and when a JPEG may be decoded at a fraction of its size.

JPEG decoders can leave out the fine half of the frequencies of each 8 x 8 block and give a smaller picture for a
fraction of the work (libjpeg's `scale_denom`, reached through OpenCV's IMREAD_REDUCED flags). The pixels are not those
of decoding in full and resizing, so this is a choice of the user; here are only the facts it needs.
"""

from __future__ import annotations

import os
from typing import BinaryIO

import cv2

# How much larger than wanted a reduced picture must still be. It is resized by linear interpolation afterwards; between
# about 1.0 and 1.1 that second step blurs a picture that has no detail to spare. From 1.25 upwards reducing first is
# nearer to the area average of the full picture than resizing alone (two photos: 45.1 to 43.7 dB, 32.9 to 29.4).
MARGIN = 1.25

_LARGEST_FIRST = (8, 4, 2)
_KINDS = {cv2.IMREAD_COLOR: "COLOR", cv2.IMREAD_GRAYSCALE: "GRAYSCALE"}
# Baseline, extended and progressive frames, Huffman or arithmetic; lossless and hierarchical ones cannot be reduced.
_FRAMES = frozenset({0xC0, 0xC1, 0xC2, 0xC9, 0xCA})
_OTHER_FRAMES = frozenset({0xC3, 0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF})
_BARE = frozenset({0x01, *range(0xD0, 0xD8)})  # markers without a length
_END = frozenset({0xD9, 0xDA})  # end of image, start of the pixels: no frame header came
_MOST_SEGMENTS = 512  # a header of a real picture has a few dozen; an ICC profile is cut into at most 255
_BLOCK = 512


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


def jpeg_size(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Return (height, width) as stored in a JPEG's frame header, before any rotation by EXIF.

    Jumps from segment to segment, so that thumbnails and colour profiles are not read: a few blocks of 512 bytes.

    Returns:
        None if the file cannot be read, is no JPEG, is damaged before its frame header, or is of a kind that decoders
        do not reduce (lossless, hierarchical, more than 8 bits, height given after the pixels).
    """
    try:
        with open(path, "rb", buffering=_BLOCK) as file:
            return _frame_size(file)
    except OSError:
        return None


def _frame_size(file: BinaryIO) -> tuple[int, int] | None:
    if file.read(2) != b"\xff\xd8":
        return None
    for _ in range(_MOST_SEGMENTS):
        marker = _marker(file)
        if marker is None or marker in _END or marker in _OTHER_FRAMES:
            return None
        if marker in _BARE:
            continue
        length = int.from_bytes(file.read(2), "big")
        if length < 2:
            return None
        if marker in _FRAMES:
            frame = file.read(5)
            if len(frame) < 5 or frame[0] != 8:
                return None
            height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
            return (height, width) if height and width else None
        file.seek(length - 2, os.SEEK_CUR)
    return None


def _marker(file: BinaryIO) -> int | None:
    """Return the code of the marker that must come here; any number of fill bytes may come before it."""
    if file.read(1) != b"\xff":
        return None
    for _ in range(_BLOCK):
        code = file.read(1)
        if code != b"\xff":
            return code[0] if code and code != b"\x00" else None
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
