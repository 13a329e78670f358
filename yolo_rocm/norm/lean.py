"""Lean memory: a training step keeps convolution outputs for backward, and computes activations from them once more.

Gradients are bit-identical to those without: every kernel of backward gets the same bits in the same layout.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from ..engines.torch_state import transform
from . import recipes
from .derived import additions_noted, functions_noted

# From torch 2.0 on, and 2.1.
_after_each_step: Final[Any] = getattr(
    importlib.import_module("torch.optim.optimizer"), "register_optimizer_step_post_hook", None
)
_increment: Final[Any] = getattr(torch.autograd.graph, "increment_version", None)


@contextmanager
def installed() -> Iterator[None]:
    """Prepare this process, once for a run; without it, residual additions are kept as they are.

    The other functions are replaced for each forward pass, although that takes time (0.2 of 33 ms on a CPU):
    TorchScript knows `torch.cat` by its object, and nothing that uses it could be scripted during a run.
    """
    with additions_noted(), fused_steps_noted():
        yield


@contextmanager
def fused_steps_noted() -> Iterator[None]:
    """Let parameters say that an optimizer has changed them, in this process, while the context is open.

    A fused optimizer does not tell autograd. Whoever goes backward after its step through activations that are computed
    again would get gradients of the new parameters; as it is, that is refused, as torch does after other optimizers.
    """
    if _after_each_step is None or _increment is None:
        yield
        return
    handle = _after_each_step(_count_fused)
    try:
        yield
    finally:
        handle.remove()


def _count_fused(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    changed = [
        p for group in optimizer.param_groups if group.get("fused") for p in group["params"] if p.grad is not None
    ]
    try:
        _increment(changed)
    except (RuntimeError, TypeError):  # older torch takes one at a time
        for parameter in changed:
            _increment(parameter)


@contextmanager
def on(smallest: int = recipes.SMALLEST, smallest_derived: int | None = None) -> Iterator[None]:
    """Keep recipes for what the forward pass of a network in this thread saves, while the context is open.

    Nothing has to be open in backward. A loss saves many tensors and no activations: leave it outside. Hooks of others
    for saved tensors, as those of gradient checkpointing, get their tensors: those inside of this what they cover, and
    those around it everything, where torch says that there are any.

    Args:
        smallest: Values of a tensor from which on a recipe is kept; of nested uses the outermost decides.
        smallest_derived: The same for what is computed from activations; as many by default.
    """
    # Or it is on already. Transforms of functorch refuse hooks.
    if recipes.others_keep() or recipes.only_ours() or transform() is not None:
        yield
        return
    smallest_derived = smallest if smallest_derived is None else smallest_derived
    hooks = torch.autograd.graph.saved_tensors_hooks(recipes.pack, recipes.unpack)
    with functions_noted(), recipes.noted(smallest, smallest_derived), hooks:
        yield
