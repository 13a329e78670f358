"""What modules keep in attributes besides parameters and buffers, which a pass may change each time, as a counter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn


class Attributes:
    """The attributes of a model as they were.

    Args:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._was = [(type(module).__name__, module.__dict__, dict(module.__dict__)) for module in model.modules()]

    def changed(self) -> str | None:
        """Return the name of one that has another value, None where none has. Inside of containers nothing is seen."""
        for kind, own, was in self._was:
            for name, value in own.items():
                if name not in was or not _same(value, was[name]):
                    return f"{kind}.{name}"
        return None

    def put_back(self) -> None:
        """Make them what they were."""
        for _, own, was in self._was:
            for name in own.keys() - was.keys():
                del own[name]
            own.update(was)


def tensors_of(dictionaries: Iterable[dict[str, Any]]) -> Iterator[torch.Tensor]:
    """Yield the tensors among attributes, and those in lists and tuples there."""
    for value in (value for own in dictionaries for value in own.values()):
        if isinstance(value, torch.Tensor):
            yield value
        elif type(value) in (list, tuple):
            yield from (each for each in value if isinstance(each, torch.Tensor))


def _same(value: Any, was: Any) -> bool:
    if value is was:
        return True
    try:
        return torch.equal(value, was) if isinstance(value, torch.Tensor) else bool(value == was)
    except Exception:  # tensors of two kinds; an array is no single truth, and others raise what they like
        return False
