"""Where a validation or a prediction computes its network: what is patched, laid out and recorded there alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ..utils.scoped_patch import attribute
from .probes import GRAPHED_INFERENCE, INFERENCE_BLOCKS, missing

Compute = Callable[[Any, Callable[[Any], Any], Any], Any]
Scope = Callable[[], AbstractContextManager[None]]


@contextmanager
def around_inference(scope: Scope) -> Iterator[None]:
    """Enter `scope()` around each forward pass of a network that is not trained, while the context is open.

    Networks of every kind come through here, also those with a `predict` of their own; what is compiled does not.
    """
    if missing(INFERENCE_BLOCKS):
        yield
        return
    place = attribute("ultralytics.nn.tasks:BaseModel", "forward")
    with place.on(functools.partial(_scoped, scope), "networks of inference"):
        yield


def _scoped(scope: Scope, original: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    from ..engines.torch_state import is_compiling

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.training or is_compiling() or torch.is_grad_enabled():
            return original(self, *args, **kwargs)
        first = next(self.parameters(), None)
        if first is None or first.requires_grad:  # a user's own, which is trained; Ultralytics switches gradients off
            return original(self, *args, **kwargs)
        with scope():
            return original(self, *args, **kwargs)

    return forward


@contextmanager
def inference_networks(compute: Compute) -> Iterator[None]:
    """Let `compute` decide how networks compute that only do so, while the context is open.

    A network with a forward pass of its own, such as RT-DETR, is computed as it is, and so is a compiled one.

    Args:
        compute: Takes a model, its forward pass as a function of an input, and the input.
    """
    if missing(GRAPHED_INFERENCE):
        yield
        return
    place = attribute("ultralytics.nn.tasks:BaseModel", "_predict_once")
    with place.on(functools.partial(_computed, compute), "networks of inference"):
        yield


def _computed(compute: Compute, original: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    from ..engines.autocast import is_on
    from ..engines.torch_state import is_compiling, is_plain_eager

    @functools.wraps(original)
    def run(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        plain = not any(args) and not any(kwargs.values())  # a profile or embeddings of layers are something else
        if not plain or is_compiling() or torch.is_grad_enabled() or self.training or is_on() or not is_plain_eager(x):
            return original(self, x, *args, **kwargs)
        return compute(self, functools.partial(original, self), x)

    return run
