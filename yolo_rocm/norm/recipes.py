"""Activations that are computed once more in backward instead of being kept.

Whoever computes an activation that could be computed again adds how. While `lean.on()` is open in this thread, what
autograd asks to keep is looked up here: such an activation, a view of one, or something computed from such (see
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

from .keeping import MOST_STEPS, Derived, Keeping, Kept, View

# Values. To compute less than this again takes the time of starting it, and saves little. Counted for yolov8n at batch
# 8 and 640 px: 14 activations are computed again instead of 57, and 0.46x of torch's bytes are kept in fp32 instead of
# 0.35x.
SMALLEST: Final = 2 * 2**20
# The same for what is made of them, sums, joins, enlarged and pooled copies: Python looks up all parts, and makes these
# again before. Of the network above, 3 instead of 12 are computed again and 0.52x of torch's bytes are kept; lean
# memory takes a quarter less of the host's time.
SMALLEST_DERIVED: Final = 6 * 2**20
# Nor is a result computed again that has fewer values than this part of a network's images. At batch 64 that leaves 30
# of 57 activations of yolov8n, and 0.39x of torch's bytes in fp32.
SMALL_PART: Final = 10
_top: Final[Callable[[bool], Any] | None] = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


class _Entry(weakref.ref):  # type: ignore[type-arg]
    """A tensor and how it is kept."""

    __slots__ = ("keeping", "key", "version")

    key: int
    version: int
    keeping: Keeping


class Recipes:
    """The tensors of one thread that need not be kept, or are kept already, while they live.

    Args:
        smallest: Values of a tensor from which on a recipe is kept.
        smallest_derived: The same, for what is computed from several.
    """

    def __init__(self, smallest: int, smallest_derived: int) -> None:
        self.smallest, self.smallest_derived = smallest, smallest_derived
        self._entries = entries = dict[int, _Entry]()

        def forget(entry: _Entry) -> None:
            if entries.get(entry.key) is entry:
                del entries[entry.key]

        self._forget = forget

    def add(self, tensor: torch.Tensor, keeping: Keeping) -> None:
        """Remember how a tensor can be kept."""
        entry = _Entry(tensor, self._forget)
        entry.key = key = id(tensor)
        entry.keeping, entry.version = keeping, tensor._version
        self._entries[key] = entry

    def instead_of(self, tensor: torch.Tensor) -> Keeping | None:
        """Return what to keep in the place of an input; None where it is small and kept as it is."""
        keeping = self._of(tensor)
        if keeping is not None:
            keeping.use()
            return keeping
        return self.keep(tensor) if _values(tensor) >= self.smallest else None

    def keep(self, tensor: torch.Tensor) -> Keeping:
        """Return what to keep of a tensor that is large enough for a recipe: one, or the tensor."""
        leaf = tensor.is_leaf
        keeping = self.find_detached(tensor) if leaf else self.find(tensor)
        if keeping is None:
            keeping = _kept(tensor)
            if not leaf:
                self.add(tensor, keeping)
        keeping.use()
        return keeping

    def derive(
        self, tensor: torch.Tensor, function: Callable[..., torch.Tensor], parts: Sequence[torch.Tensor]
    ) -> None:
        """Say what a tensor was just computed from; it can be computed again where all of the parts can, or are kept.

        Args:
            tensor: The result; `derivable` has said so.
            function: Computes it of the parts.
            parts: What it was computed from.
        """
        if tensor.is_leaf:
            return
        found: list[Keeping] = []
        dtype = tensor.dtype
        for part in parts:
            if part.dtype != dtype:  # a conversion of autocast, which is off in backward
                return
            keeping = self.find(part)
            if keeping is None:
                if _values(part) >= self.smallest:
                    return
                # torch would not keep it for this: a buffer, say, may change before backward.
                keeping = _kept(part.clone() if part.is_leaf and not part.requires_grad else part)
            elif keeping.steps == MOST_STEPS:
                return
            found.append(keeping)
        self.add(tensor, Derived(tensor, function, found))

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
        for entry in list(self._entries.values()):
            if entry.version == tensor._version:
                other: torch.Tensor | None = entry()  # for this moment only: torch may not know that Python has it
                if other is not None and other.data_ptr() == tensor.data_ptr() and _kind(other) == _kind(tensor):
                    return self._of(other)
        return None

    def _of(self, tensor: torch.Tensor) -> Keeping | None:
        entry = self._entries.get(id(tensor))
        if entry is None or entry() is not tensor or entry.version != tensor._version:
            return None
        return entry.keeping


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype


class _Thread(threading.local):
    known: Recipes | None = None
    counted: list[Keeping] | None = None


_thread = _Thread()


def active_recipes() -> Recipes | None:
    """Return the recipes of this thread, where it keeps any now."""
    return _thread.known


def wanted(tensor: torch.Tensor) -> Recipes | None:
    """Return the recipes of this thread, where it keeps any now and a tensor is large enough for one."""
    known = _thread.known
    return known if known is not None and _values(tensor) >= known.smallest else None


def derivable(tensor: torch.Tensor) -> Recipes | None:
    """Return the same for the result of a function of other tensors, which takes longer to compute again."""
    known = _thread.known
    return known if known is not None and _values(tensor) >= known.smallest_derived else None


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


def _values(tensor: torch.Tensor) -> int:
    """Return how many values a tensor keeps in memory: a view keeps all that it is a view of."""
    base = tensor._base
    return tensor.numel() if base is None else base.numel()


def _kept(tensor: torch.Tensor) -> Kept:
    # Not with the tensor's place in the graph, which may be the very node that keeps it.
    return Kept(tensor if tensor.is_leaf else tensor.detach(), tensor._version)


@contextmanager
def noted(smallest: int, smallest_derived: int) -> Iterator[None]:
    """Take offers in this thread while the context is open; tensors of fewer values than these are kept."""
    before = _thread.known
    _thread.known = before or Recipes(smallest, smallest_derived)
    try:
        yield
    finally:
        _thread.known = before


def pack(tensor: torch.Tensor) -> Keeping:
    """Return what autograd keeps instead of a tensor."""
    known = _thread.known
    if tensor.is_leaf and tensor.requires_grad:  # a parameter: most of what is saved
        keeping: Keeping = Kept(tensor, tensor._version)
    elif known is None or _values(tensor) < known.smallest:
        keeping = _kept(tensor)
    else:
        keeping = known.keep(tensor)
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
