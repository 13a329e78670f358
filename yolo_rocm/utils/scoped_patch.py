"""One value of the process, replaced while somebody needs it: an attribute of a module or class, or a flag of torch.

Users nest and run at the same time in any order. The newest decides; the value that was found returns when the last
one leaves, also after an error or Ctrl-C. Nothing is read or imported before the first use.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

Make = Callable[[Any], Any]
_NOTHING: Final = object()


@dataclass(eq=False)
class _User:
    make: Make
    purpose: str
    below: Any = _NOTHING
    value: Any = None

    def over(self, below: Any) -> Any:
        """Return what takes the place of `below`, made once for each value it is made from."""
        if self.below is not below:
            self.value = self.make(below)
            self.below = below
        return self.value


class ScopedPatch:
    """A value and those who replace it.

    Args:
        read: Returns the present value.
        write: Sets it.
    """

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], object]) -> None:
        self._read, self._write = read, write
        self._lock = threading.RLock()
        self._users: list[_User] = []
        self._original: Any = None
        self._ours: tuple[Any, ...] = ()  # what was written last, and what is being written

    @contextmanager
    def on(self, make: Make, purpose: str = "") -> Iterator[None]:
        """Keep the value replaced while the context is open.

        Args:
            make: Called with the value below, returns what takes its place.
            purpose: Of the users with one purpose only the newest counts; different purposes wrap each other, in the
                order in which they came first.
        """
        user = _User(make, purpose)
        try:
            with self._lock:
                if not self._users:
                    self._original = self._read()
                self._users.append(user)
                self._apply()
            yield
        finally:
            try:
                self._leave(user)
            except KeyboardInterrupt:  # it came in the middle: what is left to do is done now
                self._leave(user)
                raise

    @property
    def in_use(self) -> bool:
        """Whether anybody keeps the value replaced now."""
        return bool(self._users)

    def _apply(self) -> None:
        value = self._original
        # A dictionary keeps the place of a purpose's first user and the value of its last.
        for user in {user.purpose: user for user in self._users}.values():
            value = user.over(value)
        self._ours = (*self._ours, value)
        self._write(value)
        self._ours = (value,)

    def _leave(self, user: _User) -> None:
        with self._lock:
            if user in self._users:
                self._users.remove(user)
            if self._ours:
                present = self._read()
                if any(present is value for value in self._ours):  # else somebody has replaced it since: it is theirs
                    self._apply()
            if not self._users:
                self._original, self._ours = None, ()


@functools.cache
def attribute(target: str, name: str) -> ScopedPatch:
    """Return the patch of an attribute; all who ask for the same attribute get the same one.

    Args:
        target: `package.module`, or `package.module:Class`. Imported at the first use.
        name: The attribute. An inherited one is removed from the class again.
    """
    module, _, path = target.partition(":")
    names = path.split(".") if path else []

    def owner() -> Any:
        found = importlib.import_module(module)
        for each in names:
            found = getattr(found, each)
        return found

    def read() -> Any:
        found = owner()
        return vars(found).get(name, getattr(found, name))

    def write(value: Any) -> None:
        found = owner()
        setattr(found, name, value)
        inherited = isinstance(found, type) and any(vars(base).get(name) is value for base in found.__mro__[1:])
        if inherited:
            delattr(found, name)

    return ScopedPatch(read, write)
