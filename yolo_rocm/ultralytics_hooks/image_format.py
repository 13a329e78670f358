"""Images written straight into the batch they belong to, formatted as Ultralytics formats them."""

from __future__ import annotations

import random
from typing import Any

import cv2
import numpy as np
import torch

from ..data.reader import Place


class PlaneFormatter:
    """Takes the place of `Format._format_img`: the same tensor, written once, into the batch it belongs to."""

    def __init__(self, formatter: Any, place: Place) -> None:
        self._formatter, self._place = formatter, place

    def agrees(self) -> bool:
        """Try whether this Ultralytics formats images as this class does."""
        original = getattr(self._formatter, "_format_img", None)
        if original is None:
            return False
        pictures = [np.arange(20 * channels, dtype=np.uint8).reshape(4, 5, channels) for channels in (1, 3, 4)]
        mine = PlaneFormatter(self._formatter, lambda shape: np.empty(shape, np.uint8))
        before = random.getstate()
        try:
            for seed, one in enumerate(pictures * 2):  # twice: what is drawn decides the order of colours
                for image in (one, np.fliplr(one), np.flipud(one), one[..., 0]):
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
