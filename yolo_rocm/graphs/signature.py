"""What recorded passes depend on besides their input: where parameters are, who is frozen, how modules are set."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import nn

from .settings import Settings

_HOOKS = ("forward_pre", "forward", "backward_pre", "backward")


class Signature:
    """A model as it was: a recorded pass has the structure and the modes of its modules in it, and addresses.

    Compared before every step, so everything that is compared is at hand. Attributes of the model itself are not: they
    are notes of whoever trains it, which may change with each step.

    Args:
        model: The model; nothing of it is held but its dictionaries and tensors.
    """

    def __init__(self, model: nn.Module) -> None:
        self._own = [module.__dict__ for module in model.modules()]
        self._children = [own["_modules"] for own in self._own]
        held = [own[kind] for own in self._own for kind in ("_parameters", "_buffers")]
        self._held: list[dict[str, torch.Tensor | None]] = held
        self._hooks = [own[f"_{kind}_hooks"] for own in self._own for kind in _HOOKS if f"_{kind}_hooks" in own]
        self._tensors = [tensor for tensor in self._each() if tensor is not None]
        self._settings = Settings(self._own[1:])
        self._was = self._now()

    def __bool__(self) -> bool:
        """Return whether the model is still as it was."""
        return self._now() == self._was and self._settings.is_same

    def settle(self) -> None:
        """Take how modules are set now for what it was: a pass may have changed that itself."""
        self._settings.settle()

    @property
    def is_watched(self) -> bool:
        """Whether hooks want to see each call of a module, which a recorded pass does not make."""
        return any(self._hooks) or any(getattr(nn.modules.module, f"_global_{kind}_hooks", None) for kind in _HOOKS)

    def _each(self) -> Iterator[torch.Tensor | None]:
        return chain.from_iterable(held.values() for held in self._held)

    def _now(self) -> list[Any]:
        return [
            [own["training"] for own in self._own],
            [id(child) for child in chain.from_iterable(children.values() for children in self._children)],
            [id(tensor) for tensor in self._each()],
            [tensor.requires_grad for tensor in self._tensors],
            [tensor.data_ptr() for tensor in self._tensors],
        ]
