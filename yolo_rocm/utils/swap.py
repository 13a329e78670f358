"""A name in one of Ultralytics' modules, replaced while somebody needs it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Swap:
    """One name of one module. Nested and concurrent use counts: the last one out puts the original back.

    Args:
        module: Dotted name of the module; imported when the swap is first used.
        name: What is replaced there. A module without it is left alone: the feature does not exist in that version.
        make: Called with the original, returns what takes its place.
    """

    def __init__(self, module: str, name: str, make: Callable[[Any], Any]) -> None:
        self._module, self._name, self._make = module, name, make
        self._lock = threading.RLock()
        self._users = 0
        self._original: Any = None

    @contextmanager
    def on(self) -> Iterator[None]:
        """Keep the name replaced while the context is open."""
        module = importlib.import_module(self._module)
        if not hasattr(module, self._name):
            yield
            return
        with self._lock:
            if self._users == 0:
                self._original = getattr(module, self._name)
                setattr(module, self._name, self._make(self._original))
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    setattr(module, self._name, self._original)
                    self._original = None
