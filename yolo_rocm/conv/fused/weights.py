"""Weights as kernels read them, packed once and kept for as long as the model's own stay what they are."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

import torch

Made = tuple[torch.Tensor, "torch.Tensor | None"]
_MOST_DEAD: Final = 64


class _Kept(NamedTuple):
    """What was made, and of what: the tensors themselves, weakly, where their values were, and how often changed."""

    sources: tuple[weakref.ref[torch.Tensor], ...]
    state: tuple[tuple[int, int], ...]
    made: Made


class Weights:
    """Weights and biases that were made from those of a model: packed, or with a BatchNorm folded in."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Kept] = {}
        self._looked_through_at = _MOST_DEAD

    def get(self, sources: Sequence[torch.Tensor | None], kind: Hashable, make: Callable[[], Made]) -> Made:
        """Return what `make` makes of some tensors, made once.

        Tensors of inference mode do not tell when they are changed: what is made of them is made each time. Nor do
        those that torch's foreach functions change on a GPU, as optimizers and moving averages do: see `forget`.

        Args:
            sources: What it is made of.
            kind: What is made.
            make: Makes it.
        """
        given = [each for each in sources if each is not None]
        if any(each.is_inference() for each in given):
            return make()
        key = (kind, *map(id, given))
        state = tuple((each.data_ptr(), each._version) for each in given)
        kept = self._kept.get(key)
        if kept is not None and kept.state == state and all(r() is t for r, t in zip(kept.sources, given, strict=True)):
            return kept.made
        made = make()
        if made[0].data_ptr() == given[0].data_ptr():  # the model's own, as it is: keeping it would keep the model
            return made
        self._kept[key] = _Kept(tuple(map(weakref.ref, given)), state, made)
        if len(self._kept) > self._looked_through_at:
            self._drop_dead()
        return made

    def forget(self) -> None:
        """Make everything anew: weights may have changed without torch having counted it."""
        self._kept.clear()

    def _drop_dead(self) -> None:
        """Let go of what was made of tensors that are gone."""
        self._kept = {key: kept for key, kept in self._kept.items() if all(each() is not None for each in kept.sources)}
        self._looked_through_at = 2 * len(self._kept) + _MOST_DEAD
