"""A shape that has been seen, and is not recorded yet: what the loss does with the network's outputs is not known."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from .captured import Gradient
from .tree import flattened, rebuilt


class Seen:
    """A shape that has been seen.

    Args:
        call: Number of the call that it was seen in, of all calls of the network.

    Attributes:
        call: That of the last one.
        grads: After its first step, the gradients of what the network has returned, None for those without.
    """

    def __init__(self, call: int) -> None:
        self.call = call
        self.grads: list[Gradient] | None = None

    def watched(self, result: Any) -> Any:
        """Return what a network has returned, as views whose gradients are seen: those of the loss alone.

        Raises:
            TypeError: There is something that cannot be recorded.
        """
        tensors, plan = flattened(result)
        views = [each.view_as(each) if each.requires_grad else each for each in tensors]
        for place, view in enumerate(views):
            if view.requires_grad:
                view.register_hook(partial(self._see, place, len(views)))  # type: ignore[no-untyped-call]
        return rebuilt(plan, views)

    def _see(self, place: int, count: int, grad: torch.Tensor) -> None:
        if self.grads is None:
            self.grads = [None] * count
        # A loss scale that is still too high makes infinities, by which nothing can be compared.
        self.grads[place] = torch.nan_to_num(grad.detach(), 0.0, 0.0, 0.0)
