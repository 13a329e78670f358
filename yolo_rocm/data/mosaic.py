"""A bound on the images a worker keeps for mosaics, that changes no pixel."""

from __future__ import annotations

from typing import Any


class BoundedImages(list[Any]):
    """Takes the place of a data set's list of kept images and drops the oldest when they exceed a budget.

    The data set goes on choosing mosaic partners from the same indices; an image that was dropped is read again when
    it is chosen.

    Args:
        images: The list to stand in for.
        budget: Bytes of images to keep.

    Attributes:
        dropped: Images that were dropped to keep the budget, and not by the data set itself.
    """

    def __init__(self, images: list[Any], budget: int) -> None:
        super().__init__(images)
        self._budget, self._held = budget, 0
        self._sizes: dict[int, int] = {}  # oldest first
        self.dropped: set[int] = set()

    def __setitem__(self, index: Any, image: Any) -> None:
        """Keep an image, or let it go."""
        self._held -= self._sizes.pop(index, 0)
        self.dropped.discard(index)
        super().__setitem__(index, image)
        if image is None:
            return
        self._sizes[index] = image.nbytes
        self._held += image.nbytes
        while self._held > self._budget and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            self._held -= self._sizes.pop(oldest)
            super().__setitem__(oldest, None)
            self.dropped.add(oldest)
