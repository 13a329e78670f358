"""What recorded passes depend on besides their input: where tensors are, who is frozen, how modules are set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any, Final

import torch
from torch import nn

from .attributes import tensors_of

_HOOKS: Final = ("forward_pre", "forward", "backward_pre", "backward")
_version = attrgetter("_version")


class ModelSignature:
    """A model as it was. Compared before every step, so everything that is compared is at hand.

    A model has thousands of attributes and a call of a small one takes less than a millisecond: lists are compared at
    once, object by object and by value only where it is another one, which no tensor may be. What is changed inside of
    a list or a dictionary is not seen.

    Args:
        own: The dictionaries of its modules; of the model itself, nothing else is held but tensors.
        settings: Dictionaries of how modules are set.
        places: Returns what is where.
    """

    def __init__(
        self, own: list[dict[str, Any]], settings: Iterable[dict[str, Any]], places: Callable[[], list[Any]]
    ) -> None:
        self._hooks = [each[f"_{kind}_hooks"] for each in own for kind in _HOOKS if f"_{kind}_hooks" in each]
        self._places, self._places_before = places, places()
        self._settings = [each.values() for each in settings]
        self._take_values(self._values())

    def settle(self) -> None:
        """Take how modules are set now for what it was: a pass may have changed that itself."""
        values, before = self._values(), self._values_before
        # Not by value: a device would have to be waited for.
        if len(values) != len(before) or not all(map(is_, values, before)):
            self._take_values(values)

    @property
    def is_safe(self) -> bool:
        """Whether tensors are where they were, and what they were: otherwise a replay reads what is gone."""
        return self._places() == self._places_before

    @property
    def is_same(self) -> bool:
        """Whether modules are the same and set as they were."""
        values, before = self._values(), self._values_before
        try:
            same = values == before
        except Exception:  # a tensor or an array in another's place is no single truth, and others raise what they like
            return False
        return same and all(map(is_, self._tensors_of(values), self._tensors_of(before)))

    @property
    def is_watched(self) -> bool:
        """Whether hooks want to see each call of a module, which a recorded pass does not make."""
        return any(self._hooks) or any(getattr(nn.modules.module, f"_global_{kind}_hooks", None) for kind in _HOOKS)

    def _values(self) -> list[Any]:
        return list(chain.from_iterable(self._settings))

    def _take_values(self, values: list[Any]) -> None:
        tensors = [place for place, value in enumerate(values) if isinstance(value, torch.Tensor)]
        # The first one twice more, so that there are always several.
        self._tensors_of: Callable[[list[Any]], tuple[Any, ...]] = itemgetter(*tensors, 0, 0) if values else tuple
        self._values_before = values


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

        def places() -> list[Any]:
            return [
                [each["training"] for each in own],
                [id(child) for child in chain.from_iterable(each.values() for each in children)],
                [id(tensor) for tensor in each_tensor()],
                [tensor.requires_grad for tensor in tensors],
                [tensor.data_ptr() for tensor in tensors],
            ]

        super().__init__(own, own[1:], places)

    @property
    def is_safe(self) -> bool:
        """Whether tensors are where they were and modules set as they were: a step cannot be taken back."""
        return super().is_safe and self.is_same


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

        def places() -> list[Any]:
            return [*map(torch.Tensor.data_ptr, parts), *map(_version, versioned)]

        super().__init__(own, [*own, *held], places)
