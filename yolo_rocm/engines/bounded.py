"""What is kept of calls by their sizes: of so many at most, for a process that meets other sizes again and again."""

from __future__ import annotations

from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")
# Problems of one kind: 80 sizes of images through a large YOLO, some 100 MiB of plans, routes and launches.
MOST: Final = 8192


class Bounded(dict[K, V]):
    """A dictionary of at most `MOST` entries: the older half makes room for more, and is made again where it is needed.

    An entry that was just made is there until thousands of others have been.
    """

    def __setitem__(self, key: K, value: V) -> None:
        """Add an entry."""
        self._make_room(key)
        super().__setitem__(key, value)

    def setdefault(self, key: K, value: V) -> V:
        """Return the entry of a key, or add it."""
        self._make_room(key)
        return super().setdefault(key, value)

    def _make_room(self, key: K) -> None:
        if len(self) >= MOST and key not in self:
            for old in list(self)[: MOST // 2]:
                self.pop(old, None)  # another thread may have been faster
