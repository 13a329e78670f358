"""The images of the batch that a worker is reading, written once: into the memory in which the batch travels.

The one agreement on where an image is: image i of the batch is `tensor[i]` of its `Stack`. A data set that asks with
`place` writes there at once, an image that is elsewhere is copied there, and the collation, which would copy all of
them, is given empty ones. That is why it is done only with a collation that is known to stack images and to do nothing
else with them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from ..errors import LoaderError
from .transport import Ring, Stack

_IMAGE: Final = "img"


class BatchImages:
    """Where the images of one batch after the other go.

    Args:
        ring: Gives the memory.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._stack: Stack | None = None
        self._position = self._count = 0

    def begin(self, count: int) -> None:
        """Begin a batch of so many samples; the memory of one that ended in an error is given back."""
        self.abandon()
        self._position, self._count = 0, count

    def place(self, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return memory for the image of the sample that is being read: in the batch, unless it does not fit."""
        slot = self._slot(torch.empty(shape, dtype=torch.uint8, device="meta"))
        if slot is None or slot.shape != shape or slot.dtype != torch.uint8:
            return np.empty(shape, np.uint8)
        return slot.numpy()

    def _slot(self, like: torch.Tensor) -> torch.Tensor | None:
        """Return where the present sample's image goes; the first image decides on shape and type."""
        if self._stack is None and self._position == 0:
            self._stack = Stack(self._count, like, self._ring)
        return None if self._stack is None else self._stack.tensor[self._position]

    def add(self, sample: Any) -> None:
        """See that a sample's image is in the batch, and leave an empty one for the collation.

        Raises:
            LoaderError: The image has another shape or type than the first one.
        """
        image: Any = sample.get(_IMAGE) if isinstance(sample, dict) else None
        slot = self._slot(image) if isinstance(image, torch.Tensor) else None
        if slot is None:
            self.abandon()  # the collation will say what it thinks of samples without an image
        else:
            if image.shape != slot.shape or image.dtype != slot.dtype:
                raise LoaderError(
                    f"images of one batch differ in shape or type: {tuple(image.shape)} {image.dtype} after "
                    f"{tuple(slot.shape)} {slot.dtype}."
                )
            if image.data_ptr() != slot.data_ptr():
                slot.copy_(image)
            sample[_IMAGE] = image.new_empty(0)
        self._position += 1

    def finish(self, batch: Any) -> Stack | None:
        """Put the images into the collated batch and return their stack, which is the caller's from now on."""
        stack, self._stack = self._stack, None
        if stack is not None:
            batch[_IMAGE] = stack.tensor
        return stack

    def abandon(self) -> None:
        """Give back the memory of a batch that ended in an error."""
        if self._stack is not None:
            self._stack.abandon()
        self._stack = None
