"""A seam: kernels of ours in torch's dispatcher while patches are on, for one family of operators.

One patch decides for all threads: the newest that covers the device type. Nested and concurrent use counts, patches may
end in any order, and torch is as it was once the last one has ended, also after an error or Ctrl-C. While an owner of
many runs exists, such as a registered object, kernels stay in between two of its runs and pass calls on: torch keeps
some bytes of each that was ever put in, and a few bytes amid the large blocks of a prediction cost the heap megabytes.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, Protocol, TypeVar

from ..errors import ConfigError, nearest
from ..utils.off_switch import enabled
from . import dispatcher
from .backend_flags import new_memory_unfilled

DISPATCH_KEYS: Final = {"cuda": "CUDA", "cpu": "CPU"}


class Covering(Protocol):
    """A patch, as far as a seam knows it."""

    @property
    def devices(self) -> Sequence[str]:
        """Device types that it covers."""


PatchT = TypeVar("PatchT", bound=Covering)


_all: set[Seam[Any]] = set()
_owners: weakref.WeakSet[Any] = weakref.WeakSet()  # of runs that may come


def keep_kernels(owner: object) -> None:
    """Leave kernels in the dispatcher between patches, until `release_kernels` or until the owner is gone."""
    _owners.add(owner)


def release_kernels(owner: object) -> None:
    """Take out kernels that nothing needs now, unless another owner keeps them; safe to call twice."""
    _owners.discard(owner)
    for seam in list(_all):
        seam.update()


class Seam(Generic[PatchT]):
    """The patches of some operators.

    Args:
        kernels: Returns the Python kernels by the name of their `aten` operator, for a dispatch key.
        changed: Called after every change, without the lock.

    Attributes:
        serving: The newest patch of each device type. Read without the lock on every call: replaced as a whole.
        libraries: What is in the dispatcher now, by device type.
    """

    def __init__(
        self, kernels: Callable[[str], Mapping[str, Callable[..., Any]]], changed: Callable[[], object] = lambda: None
    ) -> None:
        self.serving: dict[str, PatchT] = {}
        self.libraries: dict[str, Any] = {}
        self.lock = threading.RLock()
        self._kernels, self._changed = kernels, changed
        self._patches: list[PatchT] = []  # on now, the newest last
        _all.add(self)

    @contextmanager
    def installed(self, patch: PatchT) -> Iterator[None]:
        """Put a patch on that was made before, which keeps its plans and its report from one time to the next."""
        if not enabled():
            yield
            return
        with new_memory_unfilled():
            try:
                with self.lock:
                    self._patches.append(patch)
                    self.install()
                self._changed()
                yield
            finally:
                dispatcher.forget_caller()
                with self.lock:
                    patches = self._patches
                    newest = max((i for i, each in enumerate(patches) if each is patch), default=len(patches))
                    del patches[newest : newest + 1]
                    self.install()
                for seam in list(_all):  # kernels of others may have stayed for this thread, whose last patch this is
                    seam.update()

    def update(self) -> None:
        """Make the dispatcher agree with patches and owners, and let dependants know."""
        with self.lock:
            self.install()
        self._changed()

    def install(self) -> None:
        """Make the kernels of the dispatcher agree with the patches; also takes out those that had to stay before."""
        serving = {device: patch for patch in self._patches for device in patch.devices}
        for device in set(serving) - set(self.libraries):
            key = DISPATCH_KEYS[device]
            self.libraries[device] = dispatcher.put_in(key, self._kernels(key))
        self.serving = serving
        for device in set(self.libraries) - set(serving):
            key = DISPATCH_KEYS[device]
            if not _owners and dispatcher.take_out(self.libraries[device], key, self._kernels(key)):
                del self.libraries[device]  # otherwise it passes calls on to the native kernels


def checked_devices(devices: Sequence[str]) -> tuple[str, ...]:
    """Return the device types that a patch is asked to cover.

    Raises:
        ConfigError: There is none, or one that does not exist.
    """
    unknown = [d for d in devices if d not in DISPATCH_KEYS]
    if unknown or not devices or isinstance(devices, str):
        hint = nearest(unknown[0], DISPATCH_KEYS) if unknown else "."
        raise ConfigError(
            f"devices must be a list of device types, got {devices!r}{hint} "
            f"Allowed: {', '.join(DISPATCH_KEYS)} ('cuda' is also torch's name for an AMD GPU)."
        )
    return tuple(devices)
