"""A model's parameters as leaves that autograd has not seen yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def fresh_leaves(model: nn.Module) -> Iterator[list[torch.Tensor]]:
    """Let a model compute with new leaves in the memory of its parameters while the context is open.

    Where the graph of an earlier step is still alive, as by a loss that somebody keeps, the node that adds up the
    gradient of a parameter belongs to the stream of that step, and a recording on another stream fails there.

    Yields:
        A leaf for each parameter that wants a gradient, in the order of `model.parameters()`.
    """
    leaves = {id(p): nn.Parameter(p.detach()) for p in model.parameters() if p.requires_grad}
    before = [(held, name, p) for held in _held(model) for name, p in held.items() if id(p) in leaves]
    try:
        for held, name, parameter in before:
            held[name] = leaves[id(parameter)]
        yield list(leaves.values())
    finally:
        for held, name, parameter in before:
            held[name] = parameter


def _held(model: nn.Module) -> Iterator[dict[str, nn.Parameter | None]]:
    """Yield where each module of a model has its own parameters; setting attributes would be seen by the module."""
    for module in model.modules():
        yield module._parameters
