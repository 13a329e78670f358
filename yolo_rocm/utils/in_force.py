"""What holds for a while in this process, and for which thread: the newest a thread has asked for decides for it."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class InForce(Generic[T]):
    """Things several runs have put in force, each by one thread. They may be taken back in any order, by any thread.

    Attributes:
        lock: Held while the list changes; also for what must happen together with a change.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        # Replaced as a whole, never changed in place: readers need no lock.
        self._entries: tuple[tuple[int, T], ...] = ()

    def __len__(self) -> int:
        """Count what is in force."""
        return len(self._entries)

    def add(self, item: T) -> None:
        """Put something in force, for this thread first of all."""
        with self.lock:
            self._entries = (*self._entries, (threading.get_ident(), item))

    def remove(self, item: T) -> None:
        """Take back the newest entry of something; nothing happens where there is none."""
        with self.lock:
            for index in reversed(range(len(self._entries))):
                if self._entries[index][1] is item:
                    self._entries = self._entries[:index] + self._entries[index + 1 :]
                    return

    def items(self) -> list[T]:
        """Return all that is in force, the newest last."""
        return [item for _, item in self._entries]

    def own(self) -> list[T]:
        """Return what this thread has put in force, the newest last."""
        this = threading.get_ident()
        return [item for thread, item in self._entries if thread == this]

    def decisive(self) -> T | None:
        """Return the newest of this thread; without one, the newest of all; None where nothing is in force."""
        mine = self.own() or self.items()
        return mine[-1] if mine else None

    def of_several_threads(self) -> bool:
        """Tell whether more than one thread has put something in force."""
        return len({thread for thread, _ in self._entries}) > 1
