"""Where a training step computes the network: what device graphs record."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..utils.scoped_patch import attribute
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


def _graphed(original: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    from ..graphs import network
    from ..norm.fusible import is_compiling

    @functools.wraps(original)
    def run(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        plain = not any(args) and not any(kwargs.values())  # a profile or embeddings of layers are something else
        if not plain or is_compiling() or not self.training or not torch.is_grad_enabled():
            return original(self, x, *args, **kwargs)
        known = network.of(self)
        if known is None:
            return original(self, x, *args, **kwargs)
        model = weakref.ref(self)  # what is recorded lives by the model, and must not hold it
        return known(self, lambda images: original(model(), images), x)

    return run
