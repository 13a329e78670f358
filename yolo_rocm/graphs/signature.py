"""What recorded passes depend on besides their input: where tensors are, who is frozen, how modules are set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import torch
from torch import nn

from .attributes import tensors_of
from .settings import AttributeValues

_HOOKS: Final = ("forward_pre", "forward", "backward_pre", "backward")
_version = attrgetter("_version")


class ModelSignature:
    """A model as it was. Compared before every step, so everything that is compared is at hand.

    Args:
        own: The dictionaries of its modules; of the model itself, nothing else is held but tensors.
        settings: Dictionaries of how modules are set.
        now: Returns what is where.
    """

    def __init__(
        self, own: list[dict[str, Any]], settings: Iterable[dict[str, Any]], now: Callable[[], list[Any]]
    ) -> None:
        self._hooks = [each[f"_{kind}_hooks"] for each in own for kind in _HOOKS if f"_{kind}_hooks" in each]
        self._settings = AttributeValues(settings)
        self._now, self._was = now, now()

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


class TrainingSignature(ModelSignature):
    """A model that is trained: the structure and the modes of its modules, and addresses.

    Attributes of the model itself are left out: they are notes of whoever trains it, which may change with each step.
    """

    def __init__(self, model: nn.Module) -> None:
        own = [module.__dict__ for module in model.modules()]
        children = [each["_modules"] for each in own]
        held: list[dict[str, Any]] = [each[kind] for each in own for kind in ("_parameters", "_buffers")]

        def each_tensor() -> Iterator[torch.Tensor | None]:
            return chain.from_iterable(each.values() for each in held)

        tensors = [tensor for tensor in each_tensor() if tensor is not None]

        def now() -> list[Any]:
            return [
                [each["training"] for each in own],
                [id(child) for child in chain.from_iterable(each.values() for each in children)],
                [id(tensor) for tensor in each_tensor()],
                [tensor.requires_grad for tensor in tensors],
                [tensor.data_ptr() for tensor in tensors],
            ]

        super().__init__(own, own[1:], now)


class InferenceSignature(ModelSignature):
    """A model that only computes.

    Attributes:
        tensors: Everything that it computes with: parameters, buffers, and tensors that modules keep as attributes.
    """

    def __init__(self, model: nn.Module) -> None:
        own = [module.__dict__ for module in model.modules()]
        held: list[dict[str, Any]] = [each[kind] for each in own for kind in ("_parameters", "_buffers", "_modules")]
        in_dictionaries = chain.from_iterable(each.values() for each in held)
        parts = [each for each in in_dictionaries if isinstance(each, torch.Tensor)]
        versioned = [each for each in parts if not each.is_inference()]
        self.tensors = [each.detach() for each in (*parts, *tensors_of(own))]

        def now() -> list[Any]:
            return [*map(torch.Tensor.data_ptr, parts), *map(_version, versioned)]

        super().__init__(own, [*own, *held], now)
