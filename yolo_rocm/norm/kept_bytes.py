"""Count the bytes that a forward pass keeps for backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import recipes
from .keeping import Keeping


class KeptBytes:
    """What autograd keeps.

    Args:
        kept: A list of it, which may still grow.
        without: Tensors that do not count, as parameters.
    """

    def __init__(self, kept: list[Keeping], without: Iterable[torch.Tensor]) -> None:
        self._kept = kept
        self._without = {_storage(tensor)[0] for tensor in without}

    @property
    def storages(self) -> dict[int, tuple[int, torch.Tensor]]:
        """Bytes of each block of memory that is kept, and one of the tensors in it, by its address."""
        found: dict[int, tuple[int, torch.Tensor]] = {}
        for keeping in self._kept:
            for tensor in keeping.tensors():
                address, size = _storage(tensor)
                if address not in self._without:
                    found.setdefault(address, (size, tensor))
        return found

    @property
    def bytes(self) -> int:
        """Bytes that are kept, each block of memory counted once."""
        return sum(size for size, _ in self.storages.values())


@contextmanager
def counted(without: Iterable[torch.Tensor] = ()) -> Iterator[KeptBytes]:
    """Count what autograd keeps in this thread while the context is open, inside or outside of `lean.on()`.

    All of it stays in memory as long as the object that is yielded. What other hooks for saved tensors take inside, as
    those of gradient checkpointing, does not count.

    Args:
        without: Tensors that do not count: parameters and buffers of the network.
    """
    hooks = torch.autograd.graph.saved_tensors_hooks(recipes.pack, recipes.unpack)
    with recipes.listed() as kept, hooks:
        yield KeptBytes(kept, without)


def _storage(tensor: Any) -> tuple[int, int]:
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor._storage()  # torch < 2
    return storage.data_ptr(), storage.nbytes()
