"""What this process has learned about its devices and made for them: every cache of it, in one place.

A cache stays where it is used, as a plain dictionary, set or function: reading it costs nothing more. Here they are
emptied together, or set aside for a while, as a test does that plays another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, ParamSpec, TypeVar

C = TypeVar("C", bound="dict[Any, Any] | set[Any]")
P = ParamSpec("P")
T = TypeVar("T")


class DeviceState:
    """The caches of one process."""

    def __init__(self) -> None:
        self._containers: list[dict[Any, Any] | set[Any]] = []
        self._functions: list[Callable[[], None]] = []  # each clears the results of one

    def container(self, empty: C) -> C:
        """Return a dictionary or a set that is part of the state from now on."""
        self._containers.append(empty)
        return empty

    def cached(self, maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Decorate a function: at most `maxsize` of its results are part of the state."""

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            cached = lru_cache(maxsize)(function)
            self._functions.append(cached.cache_clear)
            return cached  # type: ignore[return-value]

        return decorate

    def clear(self) -> None:
        """Forget everything; what is loaded onto a device stays there for those who hold it."""
        for container in self._containers:
            container.clear()
        for clear in self._functions:
            clear()

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Begin with an empty state, and bring back what was in this one at the end."""
        before = [container.copy() for container in self._containers]
        self.clear()
        try:
            yield
        finally:
            self.clear()
            for container, content in zip(self._containers, before, strict=False):
                container.update(content)


STATE: Final = DeviceState()
