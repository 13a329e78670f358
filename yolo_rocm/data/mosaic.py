"""A bound on the images a worker keeps for mosaics, that changes no pixel."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, MutableSequence
from typing import Any


class BoundedImages(MutableSequence[Any]):
    """Takes the place of a data set's list of kept images and drops the oldest when they exceed a budget.

    The data set goes on choosing mosaic partners from the same indices; an image that was dropped is read again when
    it is chosen.

    Args:
        images: The list to stand in for.
        budget: Bytes of images to keep.
    """

    def __init__(self, images: Any, budget: int) -> None:
        self.images = images
        self._budget, self._held = budget, 0
        self._age: OrderedDict[int, int] = OrderedDict()
        self._dropped: set[int] = set()

    def dropped(self, index: int) -> bool:
        """Tell whether an image was dropped to keep the budget, and not by the data set itself."""
        return index in self._dropped

    def __len__(self) -> int:
        """Return the number of images of the data set."""
        return len(self.images)

    def __getitem__(self, index: Any) -> Any:
        """Return a kept image, or None."""
        return self.images[index]

    def __setitem__(self, index: Any, image: Any) -> None:
        """Keep an image, or let it go."""
        self._held -= self._age.pop(index, 0)
        self._dropped.discard(index)
        self.images[index] = image
        if image is None:
            return
        self._age[index] = image.nbytes
        self._held += image.nbytes
        while self._held > self._budget and len(self._age) > 1:
            oldest, nbytes = self._age.popitem(last=False)
            self._held -= nbytes
            self.images[oldest] = None
            self._dropped.add(oldest)

    def __iter__(self) -> Iterator[Any]:
        """Go through the images as they are."""
        return iter(self.images)

    def __delitem__(self, index: Any) -> None:
        """Refuse: a data set does not shrink while it is read."""
        raise TypeError("images of a data set in use cannot be removed")

    def insert(self, index: int, value: Any) -> None:
        """Refuse: a data set does not grow while it is read."""
        raise TypeError("images cannot be added to a data set in use")
