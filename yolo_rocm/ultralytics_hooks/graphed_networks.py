"""Where a training step computes the network: what device graphs record."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..utils.scoped_patch import attribute
from .models import is_compiled
from .probes import GRAPHED_NETWORKS, missing


@contextmanager
def graphed_networks() -> Iterator[None]:
    """Compute the forward passes of models that `graphs.network` knows as recorded while the context is open.

    A network with a forward pass of its own, such as RT-DETR, is computed as it is, and so is a compiled one.
    """
    if missing(GRAPHED_NETWORKS):
        yield
        return
    with attribute("ultralytics.nn.tasks:BaseModel", "_predict_once").on(_graphed, "device graphs"):
        yield


def why_not_graphed(trainer: Any) -> str:
    """Return why nothing of a training's network is recorded; nothing where it can be tried."""
    if missing(GRAPHED_NETWORKS):
        return missing(GRAPHED_NETWORKS)[0]
    if getattr(trainer, "world_size", 1) > 1:
        return "several GPUs"
    return "the model is compiled" if is_compiled(trainer.model) else ""


def _graphed(original: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    from ..engines.torch_state import is_compiling
    from ..graphs import network

    @functools.wraps(original)
    def run(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        plain = not any(args) and not any(kwargs.values())  # a profile or embeddings of layers are something else
        if not plain or is_compiling() or not self.training or not torch.is_grad_enabled():
            return original(self, x, *args, **kwargs)
        known = network.of(self)
        return (
            original(self, x, *args, **kwargs) if known is None else known(self, functools.partial(original, self), x)
        )

    return run
