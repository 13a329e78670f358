"""Where Ultralytics computes a network, and not its loss: the one place for all that is done around it.

`BaseModel._predict_once` is patched, once for each stage. Networks with a forward pass of their own, such as RT-DETR,
and compiled ones are computed as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from ..utils.scoped_patch import attribute
from .models import is_compiled
from .probes import GRAPHED_INFERENCE, GRAPHED_NETWORKS, INFERENCE_BLOCKS, LEAN_NETWORKS, missing

Compute = Callable[[Any, Callable[[Any], Any], Any], Any]
Scope = Callable[[], AbstractContextManager[None]]


class NetworkCall(NamedTuple):
    """One forward pass of a network.

    Attributes:
        model: The network.
        x: Its input.
        compute: The pass, as a function of an input.
        is_plain: Whether nothing else is asked for, such as a profile or embeddings of layers.
    """

    model: Any
    x: Any
    compute: Callable[[Any], Any]
    is_plain: bool

    def __call__(self) -> Any:
        """Compute the network."""
        return self.compute(self.x)


@contextmanager
def network_calls(stage: Callable[[NetworkCall], Any], purpose: str, *, training: bool) -> Iterator[None]:
    """Let a stage make the calls of all networks while the context is open.

    Args:
        stage: Takes a call and returns what the network returns.
        purpose: Of stages with one purpose the newest counts; different ones wrap each other.
        training: Take the calls of steps, with gradients; otherwise those that only compute.
    """

    def staged(original: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        from ..engines.torch_state import is_compiling

        @functools.wraps(original)
        def run(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not (self.training == torch.is_grad_enabled() == training):
                return original(self, x, *args, **kwargs)
            if any(args) or any(kwargs.values()):
                return stage(NetworkCall(self, x, lambda x: original(self, x, *args, **kwargs), is_plain=False))
            return stage(NetworkCall(self, x, functools.partial(original, self), is_plain=True))

        return run

    with attribute("ultralytics.nn.tasks:BaseModel", "_predict_once").on(staged, purpose):
        yield


@contextmanager
def lean_networks() -> Iterator[None]:
    """Keep recipes instead of activations in every forward pass of a training while the context is open."""
    if missing(LEAN_NETWORKS):
        yield
        return
    from ..norm import lean, recipes

    def stage(call: NetworkCall) -> Any:
        part = call.x.numel() // recipes.SMALL_PART
        with lean.on(max(recipes.SMALLEST, part), max(recipes.SMALLEST_DERIVED, part)):
            return call()

    with lean.installed(), network_calls(stage, "lean memory", training=True):
        yield


@contextmanager
def graphed_networks() -> Iterator[None]:
    """Replay the forward passes of models that `graphs.network` has recorded while the context is open."""
    if missing(GRAPHED_NETWORKS):
        yield
        return
    from ..graphs import network

    def stage(call: NetworkCall) -> Any:
        recorded = network.of(call.model) if call.is_plain else None
        return call() if recorded is None else recorded(call.model, call.compute, call.x)

    with network_calls(stage, "device graphs", training=True):
        yield


def why_not_graphed(trainer: Any) -> str:
    """Return why nothing of a training's network is recorded; nothing where it can be tried."""
    if missing(GRAPHED_NETWORKS):
        return missing(GRAPHED_NETWORKS)[0]
    if getattr(trainer, "world_size", 1) > 1:
        return "several GPUs"
    return "the model is compiled" if is_compiled(trainer.model) else ""


@contextmanager
def inference_networks(compute: Compute) -> Iterator[None]:
    """Let `compute` decide how networks compute that only do so, while the context is open.

    Args:
        compute: Takes a model, its forward pass as a function of an input, and the input.
    """
    if missing(GRAPHED_INFERENCE):
        yield
        return
    from ..engines.autocast import is_on
    from ..engines.torch_state import is_plain_eager

    def stage(call: NetworkCall) -> Any:
        ours = call.is_plain and not is_on() and is_plain_eager(call.x)
        return compute(call.model, call.compute, call.x) if ours else call()

    with network_calls(stage, "networks of inference", training=False):
        yield


@contextmanager
def around_inference(scope: Scope) -> Iterator[None]:
    """Enter `scope()` around each forward pass of a network that is not trained, while the context is open.

    Networks of every kind come through here, also those with a `predict` of their own; what is compiled does not.
    """
    if missing(INFERENCE_BLOCKS):
        yield
        return

    def scoped(original: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        from ..engines.torch_state import is_compiling

        @functools.wraps(original)
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.training or is_compiling() or torch.is_grad_enabled():
                return original(self, *args, **kwargs)
            first = next(self.parameters(), None)
            if first is None or first.requires_grad:  # a user's own, which is trained; Ultralytics needs no gradients
                return original(self, *args, **kwargs)
            with scope():
                return original(self, *args, **kwargs)

        return forward

    with attribute("ultralytics.nn.tasks:BaseModel", "forward").on(scoped, "networks of inference"):
        yield
