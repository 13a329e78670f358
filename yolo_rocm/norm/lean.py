"""Lean memory: a training step keeps convolution outputs for backward, and computes activations from them once more.

Gradients are bit-identical to those without: every kernel of backward gets the same bits in the same layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..engines.torch_state import transform
from . import recipes
from .derived import additions_noted, functions_noted


@contextmanager
def installed() -> Iterator[None]:
    """Prepare this process, once for a run; without it, residual additions are kept as they are.

    The other functions are replaced for each forward pass, although that takes time (0.2 of 33 ms on a CPU):
    TorchScript knows `torch.cat` by its object, and nothing that uses it could be scripted during a run.
    """
    with additions_noted():
        yield


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
