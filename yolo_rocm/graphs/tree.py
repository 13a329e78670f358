"""Tensors in nested tuples, lists and dictionaries: what a network returns."""

from __future__ import annotations

from typing import Any

import torch


def flattened(tree: Any) -> tuple[list[torch.Tensor], Any]:
    """Take the tensors out of a tree.

    Returns:
        The tensors, each of them once, and a plan for `rebuilt`.

    Raises:
        TypeError: There is something that is neither a tensor, a container, a number nor None: nobody knows whether it
            is the same in the next step.
    """
    tensors: list[torch.Tensor] = []
    places: dict[int, int] = {}

    def plan(node: Any) -> Any:
        if isinstance(node, torch.Tensor):
            place = places.setdefault(id(node), len(tensors))
            if place == len(tensors):
                tensors.append(node)
            return torch.Tensor, place
        if type(node) in (list, tuple):
            return type(node), [plan(each) for each in node]
        if type(node) is dict:
            return dict, {key: plan(each) for key, each in node.items()}
        if node is None or isinstance(node, bool | int | float | str):
            return object, node
        raise TypeError(f"the network returns a {type(node).__name__}")

    return tensors, plan(tree)


def rebuilt(plan: Any, tensors: Any) -> Any:
    """Put tensors where `flattened` has found them."""
    kind, content = plan
    if kind is torch.Tensor:
        return tensors[content]
    if kind is dict:
        return {key: rebuilt(each, tensors) for key, each in content.items()}
    return content if kind is object else kind(rebuilt(each, tensors) for each in content)
