"""HSV and flips left to the device: workers draw their parameters and change boxes, pixels stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch

from ..data.augment import Recorded
from .probes import DEVICE_AUGMENT, missing

AUGMENT_KEY: Final = "rocm_augment"
_GAINS: Final = "rocm_gains"
_FLIPS: Final = {"horizontal": "rocm_left_right", "vertical": "rocm_up_down"}


def device_augment_possible(dataset: Any) -> bool:
    """Return whether HSV and flips of this data set can be left to the device."""
    from ultralytics.data import augment

    transforms = getattr(getattr(dataset, "transforms", None), "transforms", [])
    if missing(DEVICE_AUGMENT) or not getattr(dataset, "augment", False) or getattr(dataset, "channels", 3) != 3:
        return False
    kinds = [type(transform) for transform in transforms]
    return augment.RandomHSV in kinds and not getattr(transforms[-1], "bgr", 0.0)


def recorders(part: Any) -> Iterator[tuple[int, Any]]:
    """Yield place and stand-in of each transform that the device will do instead."""
    from ultralytics.data import augment

    if device_augment_possible(part):
        for place, transform in enumerate(part.transforms.transforms):
            if type(transform) is augment.RandomHSV:
                yield place, RecordHSV(transform)
            elif type(transform) is augment.RandomFlip:
                yield place, _recording_flip(transform)


class RecordHSV:
    """Draws what RandomHSV would draw and leaves the pixels alone."""

    def __init__(self, transform: Any) -> None:
        self._gains = (transform.hgain, transform.sgain, transform.vgain)

    def __call__(self, labels: dict[str, Any]) -> dict[str, Any]:
        """Draw for one sample."""
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


def collect_draws(batch: Any) -> None:
    """Gather what was drawn for the samples of a collated batch under one key."""
    if not isinstance(batch, dict) or _GAINS not in batch:
        return
    drawn = batch.pop(_GAINS)
    gains = None if drawn[0] is None else torch.from_numpy(np.stack(drawn))
    flips = [torch.tensor(batch.pop(key, [False] * len(drawn)), dtype=torch.bool) for key in _FLIPS.values()]
    batch[AUGMENT_KEY] = Recorded(gains, *flips)
