"""What a recorded forward pass depends on besides its input: the tensors that it reads, and how modules are set."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import Any, Final

import torch
from torch import nn

from .attributes import tensors_of
from .settings import Settings

_HOOKS: Final = ("forward_pre", "forward", "backward_pre", "backward")
_version = attrgetter("_version")


class State:
    """A model as it was.

    Args:
        model: The model; nothing of it is held but its dictionaries and tensors.

    Attributes:
        tensors: Everything that it computes with: parameters, buffers, and tensors that modules keep as attributes.
    """

    def __init__(self, model: nn.Module) -> None:
        self._own = [module.__dict__ for module in model.modules()]
        kinds = ("_parameters", "_buffers", "_modules")
        held: list[dict[str, Any]] = [own[kind] for own in self._own for kind in kinds]
        self._settings = Settings([*self._own, *held])
        self._hooks = [own[f"_{kind}_hooks"] for own in self._own for kind in _HOOKS if f"_{kind}_hooks" in own]
        in_dictionaries = chain.from_iterable(each.values() for each in held)
        self._parts = [each for each in in_dictionaries if isinstance(each, torch.Tensor)]
        self._versioned = [each for each in self._parts if not each.is_inference()]
        self.tensors = [each.detach() for each in (*self._parts, *tensors_of(self._own))]
        self._was = self._now()

    def settle(self) -> None:
        """Take how modules are set now for what it was: a pass may have changed that itself."""
        self._settings.settle()

    @property
    def is_safe(self) -> bool:
        """Whether tensors are where they were, and what they were: otherwise a replay reads what is gone."""
        return self._now() == self._was

    @property
    def is_same(self) -> bool:
        """Whether modules are the same and set as they were."""
        return self._settings.is_same

    @property
    def is_watched(self) -> bool:
        """Whether hooks want to see each call of a module, which a recorded pass does not make."""
        return any(self._hooks) or any(getattr(nn.modules.module, f"_global_{kind}_hooks", None) for kind in _HOOKS)

    def _now(self) -> list[Any]:
        return [*map(torch.Tensor.data_ptr, self._parts), *map(_version, self._versioned)]
