"""Weights as kernels read them, packed once and kept for as long as the model's own stay what they are."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import torch

Made = tuple[torch.Tensor, "torch.Tensor | None"]


class _Kept(NamedTuple):
    """What was made, and of what: the tensors themselves, weakly, where their values were, and how often changed.

    Their memory is held, so that no others come to lie at its address (`p.data = ...`).
    """

    sources: tuple[weakref.ref[torch.Tensor], ...]
    memory: tuple[torch.Tensor, ...]
    state: tuple[tuple[int, int], ...]
    made: Made


def _state(source: torch.Tensor) -> tuple[int, int]:
    return source.data_ptr(), -1 if source.is_inference() else source._version


class Weights:
    """Weights and biases that were made from those of a model: packed, or with a BatchNorm folded in."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Kept] = {}

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
        key, all_kept = (kind, *map(id, given)), self._kept
        state = tuple(map(_state, given))
        kept = all_kept.get(key)
        if kept is not None and kept.state == state and all(r() is t for r, t in zip(kept.sources, given, strict=True)):
            return kept.made
        made = make()
        if made[0].data_ptr() == given[0].data_ptr():  # the model's own, as it is: keeping it would keep the model
            return made

        def let_go(source: object) -> None:
            all_kept.pop(key, None)

        if kept is not None:  # the model has changed or moved, as a rule all of it
            self._drop_outdated()
        refs = tuple(weakref.ref(each, let_go) for each in given)
        all_kept[key] = _Kept(refs, tuple(each.detach() for each in given), state, made)
        return made

    def _drop_outdated(self) -> None:
        """Let go of what a model no longer has, as after `model.cpu()`: its memory is held here."""
        for key, kept in list(self._kept.items()):
            sources = [ref() for ref in kept.sources]
            if any(each is None or _state(each) != state for each, state in zip(sources, kept.state, strict=True)):
                self._kept.pop(key, None)

    def forget(self) -> None:
        """Make everything anew: weights may have changed without torch having counted it."""
        self._kept.clear()
