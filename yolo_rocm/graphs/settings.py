"""How modules are set: what their attributes are, and whether any has become another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from operator import is_, itemgetter
from typing import Any

import torch


class AttributeValues:
    """Values in dictionaries as they were.

    A model has thousands of attributes and a call of a small one takes less than a millisecond: lists are compared at
    once, object by object and by value only where it is another one, which no tensor may be. What is changed inside of
    a list or a dictionary is not seen.

    Args:
        dictionaries: Of modules: their attributes, and what torch keeps apart.
    """

    def __init__(self, dictionaries: Iterable[dict[str, Any]]) -> None:
        self._values = [each.values() for each in dictionaries]
        self._take()

    def settle(self) -> None:
        """Take how modules are set now for what it was: a pass may have changed that itself."""
        now, was = self._now(), self._was
        if len(now) != len(was) or not all(map(is_, now, was)):  # not by value: a device would have to be waited for
            self._take()

    def _take(self) -> None:
        self._was = self._now()
        places = [place for place, value in enumerate(self._was) if isinstance(value, torch.Tensor)]
        several: Callable[[list[Any]], tuple[Any, ...]] = itemgetter(*places, 0, 0) if self._was else tuple
        self._tensors_of = several

    @property
    def is_same(self) -> bool:
        """Whether they are set as they were."""
        now, was = self._now(), self._was
        try:
            same = now == was
        except Exception:  # a tensor or an array in another's place is no single truth, and others raise what they like
            return False
        return same and all(map(is_, self._tensors_of(now), self._tensors_of(was)))

    def _now(self) -> list[Any]:
        """Return who is where."""
        return list(chain.from_iterable(self._values))
