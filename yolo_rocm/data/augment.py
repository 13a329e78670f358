"""Colour jitter and flips on a batch that is already on the device, with the pixels OpenCV would have given.

Workers that leave these two steps out send the batch earlier; what they drew travels along as `Recorded`, so the
distributions and the random state of the workers stay those of the caller. The way through HSV and back is looked up
for each pixel in two tables that OpenCV itself has filled, with every colour of 8 bits: its builds differ by a level
here and there, and the table is of the one that workers use. (Its vector code cuts off where the rest of a row, if the
width is no multiple of a vector, is rounded; the tables are of the vector code.)
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor

HUES = 180  # hue levels of an 8-bit HSV image in OpenCV; a shifted hue may round up to 180 itself
_GPU_PIXELS = (256 << 20) // 32  # `_convert` has temporaries of 32 bytes a pixel alive at once: 256 MB of them
_CPU_PIXELS = 1 << 14  # temporaries stay in a core's second-level cache


@functools.lru_cache(maxsize=8)
def _colours(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return HSV by RGB and RGB by HSV, 64 and 47 MB: three bytes to an integer, as index and as value."""
    # Blocking copies: whichever stream asks next finds the tables complete.
    return _table(256, cv2.COLOR_RGB2HSV).to(device), _table(HUES + 1, cv2.COLOR_HSV2RGB).to(device)


def _table(firsts: int, code: int) -> Tensor:
    level = np.arange(256, dtype=np.uint8)
    plane, packed = np.empty((256, 256, 3), np.uint8), np.empty((firsts, 256, 256), np.int32)
    plane[..., 1], plane[..., 2] = level[:, None], level
    for first in range(firsts):
        plane[..., 0] = first
        done = cv2.cvtColor(plane, code).astype(np.int32)
        packed[first] = done[..., 0] << 16 | done[..., 1] << 8 | done[..., 2]
    return torch.from_numpy(packed.reshape(-1))


def hsv_tables(gains: Tensor) -> Tensor:
    """Return the lookup tables of hue, saturation and value for each image of a batch.

    Args:
        gains: (B, 3) drawn gains: hue shift as a share of the circle, saturation and value relative to 1.

    Returns:
        (B, 3, 256) uint8 on the device of `gains`. Saturation 0 stays 0, so greys stay grey.
    """
    gains = gains.double()
    level = torch.arange(256, dtype=torch.float64, device=gains.device)
    hue = (level + gains[:, :1] * HUES).remainder(HUES)
    scaled = (level * (gains[:, 1:, None] + 1)).clamp(0, 255)
    return torch.cat((hue[:, None], scaled), 1).to(torch.uint8)


def apply_hsv(images: Tensor, tables: Tensor) -> Tensor:
    """Send a batch through HSV and back with each image's own tables.

    Sixteen 640 x 640 images take 0.7 ms on an H200. A large batch is done in pieces, on a CPU in pieces that fit its
    cache. No step waits for the device.

    Args:
        images: (B, 3, H, W) uint8, red first.
        tables: (B, 3, 256) uint8 from `hsv_tables`, on any device.

    Returns:
        (B, 3, H, W) uint8 in new memory.
    """
    images = images.contiguous()
    out = torch.empty_like(images)
    if not images.numel():
        return out
    count, _, height, width = images.shape
    lookup = tables.int() << torch.tensor([[16], [8], [0]], dtype=torch.int32, device=tables.device)
    if tables.device.type == "cpu" and images.device.type == "cuda":
        lookup = lookup.pin_memory()  # copied without waiting for what the device still has to do
    lookup = lookup.to(images.device, non_blocking=True)
    source, target = images.view(count, 3, -1), out.view(count, 3, -1)
    area = height * width
    at_once = _CPU_PIXELS if images.device.type == "cpu" else _GPU_PIXELS
    step, group = min(area, at_once), max(1, at_once // area)
    for first in range(0, count, group):
        some = slice(first, first + group)
        for start in range(0, area, step):
            piece = slice(start, start + step)
            _convert(source[some, :, piece], target[some, :, piece], lookup[some])
    return out


def _convert(source: Tensor, target: Tensor, lookup: Tensor) -> None:
    """Convert (n, 3, P) pixels with (n, 3, 256) int32 tables, each already shifted to its byte."""
    to_hsv, to_rgb = _colours(source.device)
    red, green, blue = source.int().unbind(1)
    hsv = _pick(to_hsv, red << 16 | green << 8 | blue)
    rows = torch.arange(len(source), dtype=torch.int32, device=source.device)[:, None] * 768
    flat = lookup.flatten()
    changed = _pick(flat, rows + (hsv >> 16))
    changed |= _pick(flat, (hsv >> 8 & 255) + (rows + 256))
    changed |= _pick(flat, (hsv & 255) + (rows + 512))
    rgb = _pick(to_rgb, changed)
    for channel, shift in enumerate((16, 8, 0)):
        target[:, channel].copy_(rgb >> shift & 255)


def _pick(table: Tensor, index: Tensor) -> Tensor:
    # index_select takes 32-bit indices, which halves the traffic of gather.
    return table.index_select(0, index.flatten()).view(index.shape)


def apply_flips(images: Tensor, left_right: Tensor | None, up_down: Tensor | None) -> Tensor:
    """Mirror the marked images of a batch, in place.

    Moves 12 bytes per pixel of a flipped image.

    Args:
        images: (B, C, H, W).
        left_right: (B,) bool, best on the CPU: flags on a device have to be waited for. None flips no image.
        up_down: The same for the other direction.
    """
    for axis, flags in ((-1, left_right), (-2, up_down)):
        for index, wanted in enumerate(() if flags is None else flags.tolist()):
            if wanted:
                images[index].copy_(images[index].flip(axis))
    return images


@dataclass(frozen=True)
class Recorded:
    """What was drawn for a batch but left for the device to do.

    Attributes:
        gains: (B, 3) hue, saturation and value gains as drawn, on the CPU; float64 reproduces the caller's tables to
            the last entry. None leaves the colours alone, which is not the same as gains of zero: the way through
            HSV and back loses a level here and there.
        left_right: (B,) bool on the CPU; None flips no image.
        up_down: (B,) bool on the CPU; None flips no image.
    """

    gains: Tensor | None = None
    left_right: Tensor | None = None
    up_down: Tensor | None = None

    def apply(self, images: Tensor) -> Tensor:
        """Return a (B, C, H, W) batch, red first, as drawn; other than uint8 in three channels keeps its colours."""
        if self.gains is not None and images.shape[1] == 3 and images.dtype == torch.uint8:
            return apply_flips(apply_hsv(images, hsv_tables(self.gains)), self.left_right, self.up_down)
        return apply_flips(images.clone(), self.left_right, self.up_down)
