"""Colour jitter and flips on a batch that is already on the device, with the pixels OpenCV would have given.

Workers that leave these two steps out send the batch earlier; what they drew travels along as `Recorded`, so the
distributions and the random state of the workers stay those of the caller. Saturation and value come from the tables
the caller's gains define, and the two colour conversions follow OpenCV's 8-bit arithmetic: BGR to HSV in fixed point
with 12 fractional bits, HSV to BGR in float32, cut off rather than rounded (its vector code does so; only the last
few columns of a row, where the width is no multiple of its vector, are rounded there).
https://github.com/opencv/opencv/blob/4.x/modules/imgproc/src/color_hsv.simd.hpp

Measured over all 2**24 colours against the aarch64 builds of OpenCV 4.11 and 5.0: equal, except for the 0.04 % of
colours whose saturation is on a tie that those builds' own division misses by one level (1 level in the result, 2
where the gain stretches the saturation). OpenCV's portable code takes it from tables, as is done here.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

HUES = 180  # hue levels of an 8-bit HSV image in OpenCV
_STRIDE = HUES + 1  # a shifted hue may round up to 180 itself
_LOWEST = 30  # reds on the blue side come out of the division as -30 ... -1
_FIXED = 4096.0  # 12 fractional bits
_GPU_PIXELS = (256 << 20) // 32  # `_convert` has temporaries of 32 bytes a pixel alive at once: 256 MB of them
_IMAGES_AT_ONCE = 16  # keeps image number * 210 + hue with its 12 fractional bits inside float32's 24
_CPU_PIXELS = 1 << 14  # temporaries stay in a core's second-level cache


@dataclass(frozen=True)
class _Constants:
    """Image-independent tables on one device.

    Attributes:
        saturation: (65536,) int64, saturation by value * 256 + (value - lowest channel).
        per_hue: (256,) float32, hue steps per unit of channel difference, by value - lowest channel.
        share: Three (256 * 181,) float32 for red, green, blue: what a saturation and a hue leave of the value.
    """

    saturation: Tensor
    per_hue: Tensor
    share: tuple[Tensor, Tensor, Tensor]


@functools.lru_cache(maxsize=8)
def _constants(device: torch.device) -> _Constants:
    level = torch.arange(256, dtype=torch.float64)
    # Division by zero gives inf; OpenCV's tables hold 0 there.
    by_value = ((255 << 12) / level).round().nan_to_num(posinf=0.0).long()
    by_spread = ((HUES << 12) / (6 * level)).round().nan_to_num(posinf=0.0)
    spread = torch.arange(256)
    saturation = ((by_value[:, None] * spread + 2048) >> 12).clamp_(max=255)

    hue = torch.arange(_STRIDE, dtype=torch.float32) * torch.tensor(6 / HUES, dtype=torch.float32)
    sector = hue.trunc()
    rising = (hue - sector).double()
    falling = (1 - (hue - sector)).double()
    sector = sector.remainder(6).long()
    one, none = torch.ones_like(rising), torch.zeros_like(rising)
    # How much of the saturation each channel loses in sectors 0 ... 5; rounded once, as a fused multiply-add does.
    lost = {
        "red": (none, rising, one, one, falling, none),
        "green": (falling, none, none, rising, one, one),
        "blue": (one, one, falling, none, none, rising),
    }
    part = level.float() * torch.tensor(1 / 255, dtype=torch.float32)
    share = tuple(
        (1 - part.double()[:, None] * torch.stack(by_sector)[sector, torch.arange(_STRIDE)]).float().flatten()
        for by_sector in lost.values()
    )
    # Blocking copies: whichever stream asks next finds the tables complete.
    red, green, blue = (table.to(device) for table in share)
    return _Constants(saturation.flatten().to(device), (by_spread / _FIXED).float().to(device), (red, green, blue))


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

    Counted from the operations, 260 bytes of memory traffic per pixel in 38 kernels (the pictures themselves are 6 of
    them, the rest are 8- to 32-bit temporaries): sixteen 640 x 640 images move 1.7 GB. A large batch is done in pieces,
    on a CPU in pieces that fit its cache. No step waits for the device. Every operation is exact or rounds once, so
    that every device gives the same pixels.

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
    constants = _constants(images.device)
    if tables.device.type == "cpu" and images.device.type == "cuda":
        tables = tables.pin_memory()  # copied without waiting for what the device still has to do
    tables = tables.to(images.device, non_blocking=True)
    source, target = images.view(count, 3, -1), out.view(count, 3, -1)
    area = height * width
    at_once = _CPU_PIXELS if images.device.type == "cpu" else _GPU_PIXELS
    step = min(area, at_once)
    group = min(_IMAGES_AT_ONCE, max(1, at_once // area))
    for first in range(0, count, group):
        some = slice(first, first + group)
        lookup = _Lookup.of(tables[some], constants)
        for start in range(0, area, step):
            piece = slice(start, start + step)
            _convert(source[some, :, piece], target[some, :, piece], lookup, constants)
    return out


@dataclass(frozen=True)
class _Lookup:
    """The tables of a few images, laid out for one flat index each."""

    rows: Tensor  # (n, 1) int32: image number * 256
    hue_rows: Tensor  # (n, 1) float32: image number * 210, + 30 for negative hues, + 0.5 to round
    hue: Tensor  # (n * 210,) int32
    saturation: Tensor  # (n * 65536,) int32, times the stride of `_Constants.share`
    value: Tensor  # (n * 256,) float32, 0 ... 1

    @classmethod
    def of(cls, tables: Tensor, constants: _Constants) -> _Lookup:
        device, levels = tables.device, HUES + _LOWEST
        images = torch.arange(len(tables), device=device)[:, None]
        shifted = torch.arange(-_LOWEST, HUES, device=device).remainder(HUES)
        by_saturation = tables[:, 1].to(torch.int32) * _STRIDE
        return cls(
            rows=(images * 256).to(torch.int32),
            hue_rows=images.float() * levels + (_LOWEST + 0.5),
            hue=tables[:, 0].index_select(1, shifted).to(torch.int32).flatten(),
            saturation=by_saturation.index_select(1, constants.saturation).flatten(),
            value=tables[:, 2].flatten().float() * torch.tensor(1 / 255, dtype=torch.float32).item(),
        )


def _pick(table: Tensor, index: Tensor) -> Tensor:
    # index_select takes 32-bit indices, which halves the traffic of gather.
    return table.index_select(0, index.flatten()).view(index.shape)


def _convert(source: Tensor, target: Tensor, lookup: _Lookup, constants: _Constants) -> None:
    """Convert (n, 3, P) pixels."""
    red, green, blue = source.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    spread = value - torch.minimum(torch.minimum(red, green), blue)

    wide = source.to(torch.int16)
    from_red = wide[:, 1].sub_(blue)
    from_green = wide[:, 2].sub_(red).add_(spread, alpha=2)
    from_blue = wide[:, 0].sub_(green).add_(spread, alpha=4)
    distance = torch.where(red == value, from_red, torch.where(green == value, from_green, from_blue))
    del wide, from_red, from_green, from_blue

    by_spread = spread.to(torch.int32)
    # Products of integers below 2**24 with 12 fractional bits: exact in float32, fused or not.
    hue = (_pick(constants.per_hue, by_spread) * distance).add_(lookup.hue_rows).to(torch.int32)
    rows = lookup.rows + value
    by_spread.add_(rows, alpha=256)
    at = _pick(lookup.saturation, by_spread).add_(_pick(lookup.hue, hue))
    brightness = _pick(lookup.value, rows)
    del distance, hue, by_spread, rows
    for channel, share in enumerate(constants.share):
        target[:, channel].copy_(_pick(share, at).mul_(brightness).mul_(255))


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
