"""Where a training step computes the network and not its loss: what lean memory is on for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..utils.scoped_patch import attribute
from .probes import LEAN_NETWORKS, missing


@contextmanager
def lean_networks() -> Iterator[None]:
    """Keep recipes instead of activations in every forward pass of a training while the context is open.

    Networks with a forward pass of their own, such as RT-DETR, keep their activations, and so does a compiled one.
    """
    if missing(LEAN_NETWORKS):
        yield
        return
    from ..norm import lean

    with lean.installed(), attribute("ultralytics.nn.tasks:BaseModel", "_predict_once").on(_lean):
        yield


def _lean(original: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    from ..engines.torch_state import is_compiling
    from ..norm import lean, recipes

    @functools.wraps(original)
    def run(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not self.training or not torch.is_grad_enabled():
            return original(self, x, *args, **kwargs)
        part = x.numel() // recipes.SMALL_PART
        with lean.on(max(recipes.SMALLEST, part), max(recipes.SMALLEST_DERIVED, part)):
            return original(self, x, *args, **kwargs)

    return run
