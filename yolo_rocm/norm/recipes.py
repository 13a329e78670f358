"""Activations that are computed once more in backward instead of being kept.

Whoever computes an activation that could be computed again offers it. While `lean.on()` is open in this thread, what
autograd asks to keep is looked up here: an offered activation, a view of one, or something computed from such (see
`derived`) is kept as its recipe, and everything else as itself.

Tensors are known as objects, by weak references, never by the address of their memory, which is used again; and by
their counter of changes in place, so an activation that was changed since is an ordinary tensor.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch

from .keeping import MOST_STEPS, Activation, Derived, Keeping, Kept, View

# Bytes. To compute less than this again takes the time of starting it, and saves little. Counted for yolov8n at batch
# 8, 640 px and half precision: 21 activations are computed again instead of 81, and 0.44x of torch's bytes are kept
# instead of 0.32x; at batch 64 it is 77 and 0.32x.
SMALLEST: Final = 4 * 2**20
_top: Final[Callable[[bool], Any] | None] = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


class _Entry(weakref.ref):  # type: ignore[type-arg]
    """A tensor and how it is kept."""

    __slots__ = ("address", "keeping", "key", "version")

    key: int
    address: int
    version: int
    keeping: Keeping


class _Known:
    """The tensors of one thread that need not be kept, or are kept already, while they live."""

    def __init__(self, smallest: int) -> None:
        self.smallest = smallest
        self._entries: dict[int, _Entry] = {}

    def add(self, tensor: torch.Tensor, keeping: Keeping) -> None:
        entry = _Entry(tensor, self._forget)
        entry.key, entry.keeping, entry.version = id(tensor), keeping, tensor._version
        entry.address = tensor.data_ptr()
        self._entries[entry.key] = entry

    def find(self, tensor: torch.Tensor) -> Keeping | None:
        """Return how a tensor, or what it is a view of, is kept; None where nothing is known of it."""
        keeping = self._of(tensor)
        if keeping is not None:
            return keeping
        base = tensor._base
        if base is None or base.dtype != tensor.dtype:
            return None
        whole = self._of(base)
        return None if whole is None else View(tensor, base, whole)

    def find_detached(self, tensor: torch.Tensor) -> Keeping | None:
        """Return how a tensor is kept that may be the `detach()` of a known one, which a second head of a network gets.

        A known tensor lives, so nothing else can be at its address.
        """
        address = tensor.data_ptr()
        for entry in list(self._entries.values()):
            if entry.address == address and entry.version == tensor._version:
                other: torch.Tensor | None = entry()  # for this moment only: torch may not know that Python has it
                if other is not None and _alike(tensor, other):
                    return self._of(other)
        return None

    def _of(self, tensor: torch.Tensor) -> Keeping | None:
        entry = self._entries.get(id(tensor))
        if entry is None or entry() is not tensor or entry.version != tensor._version:
            return None
        return entry.keeping

    def _forget(self, entry: _Entry) -> None:
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.data_ptr() == other.data_ptr()
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.dtype == other.dtype
    )


class _Thread(threading.local):
    known: _Known | None = None
    counted: list[Keeping] | None = None


_thread = _Thread()


def wanted(tensor: torch.Tensor | None = None) -> bool:
    """Return whether this thread keeps recipes now; for a tensor, whether it is large enough for one."""
    known = _thread.known
    return known is not None and (tensor is None or _bytes(tensor) >= known.smallest)


def offer(
    tensor: torch.Tensor, recompute: Callable[[], torch.Tensor], sources: Sequence[torch.Tensor | None] = ()
) -> None:
    """Say that an activation can be computed again; ask `wanted(tensor)` before anything is made for it.

    Args:
        tensor: The activation, as its consumers get it.
        recompute: Returns it again, with the same bits and layout. Holds nothing that is not kept for backward anyway.
        sources: The tensors that it reads, which must not be changed in place before backward.
    """
    known = _thread.known
    if known is not None and _bytes(tensor) >= known.smallest:
        known.add(tensor, Activation(tensor, recompute, sources))


def remember(tensor: torch.Tensor, keeping: Keeping) -> None:
    """Say how a tensor can be kept, by somebody who has made that already."""
    known = _thread.known
    if known is not None:
        known.add(tensor, keeping)


def only_ours() -> bool:
    """Return whether what autograd keeps now would come to `pack`, and nobody counts it.

    Then a function may ask `pack` itself and keep that, at a fraction of what hooks cost. False where torch does not
    say which hooks there are.
    """
    if _thread.counted is not None or _top is None:
        return False
    hooks = _top(True)
    return hooks is not None and hooks[0] is pack


def others_keep() -> bool:
    """Return whether somebody else's hooks take what autograd keeps now. False where torch does not say."""
    hooks = None if _top is None else _top(True)
    return hooks is not None and hooks[0] is not pack


def derive(tensor: torch.Tensor, function: Callable[..., torch.Tensor], parts: Sequence[torch.Tensor]) -> None:
    """Say what a tensor was just computed from; it can be computed again where all of the parts can, or are kept.

    Args:
        tensor: The result.
        function: Computes it of the parts.
        parts: What it was computed from.
    """
    known = _thread.known
    if known is None or tensor.is_leaf or _bytes(tensor) < known.smallest:
        return
    found: list[Keeping] = []
    for part in parts:
        if part.dtype != tensor.dtype:  # a conversion of autocast, which is off in backward
            return
        keeping = known.find(part)
        if keeping is None:
            if _bytes(part) >= known.smallest:
                return
            # torch would not keep it for this: a buffer, say, may change before backward.
            keeping = _kept(part.clone() if part.is_leaf and not part.requires_grad else part)
        elif keeping.steps == MOST_STEPS:
            return
        found.append(keeping)
    known.add(tensor, Derived(tensor, function, found))


def _bytes(tensor: torch.Tensor) -> int:
    """Return the bytes that a tensor keeps in memory: a view keeps all that it is a view of."""
    base = tensor._base
    if base is not None:
        tensor = base
    return tensor.numel() * tensor.element_size()


def _kept(tensor: torch.Tensor) -> Kept:
    # Not with the tensor's place in the graph, which may be the very node that keeps it.
    return Kept(tensor if tensor.is_leaf else tensor.detach(), tensor._version)


@contextmanager
def noted(smallest: int) -> Iterator[None]:
    """Take offers in this thread while the context is open; tensors of fewer bytes than `smallest` are kept."""
    before = _thread.known
    _thread.known = before or _Known(smallest)
    try:
        yield
    finally:
        _thread.known = before


def pack(tensor: torch.Tensor) -> Keeping:
    """Return what autograd keeps instead of a tensor."""
    known, leaf = _thread.known, tensor.is_leaf
    keeping: Keeping | None
    if leaf and tensor.requires_grad:  # a parameter: most of what is saved
        keeping = Kept(tensor, tensor._version)
    elif known is None or _bytes(tensor) < known.smallest:
        keeping = _kept(tensor)
    else:
        keeping = known.find_detached(tensor) if leaf else known.find(tensor)
        if keeping is None:
            keeping = _kept(tensor)
            if not leaf:
                known.add(tensor, keeping)
    if _thread.counted is not None:
        _thread.counted.append(keeping)
    return keeping


def unpack(keeping: Keeping) -> torch.Tensor:
    """Return the tensor that autograd asked to keep."""
    return keeping.value()


@contextmanager
def listed() -> Iterator[list[Keeping]]:
    """Yield a list of what autograd keeps by `pack` in this thread while the context is open."""
    before, kept = _thread.counted, list[Keeping]()
    _thread.counted = kept
    try:
        yield kept
    finally:
        _thread.counted = before
