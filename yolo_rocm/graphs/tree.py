"""Tensors in nested tuples, lists and dictionaries: what a network returns."""

from __future__ import annotations

from typing import Any

import torch


def flattened(tree: Any) -> tuple[list[torch.Tensor], Any]:
    """Take the tensors out of a tree.

    Returns:
        The tensors, and a plan for `rebuilt`.

    Raises:
        TypeError: There is something that is neither a tensor, a container, a number nor None: nobody knows whether it
            is the same in the next step.
    """
    tensors: list[torch.Tensor] = []

    def plan(node: Any) -> Any:
        if isinstance(node, torch.Tensor):
            tensors.append(node)
            return torch.Tensor
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
    following = iter(tensors)

    def build(node: Any) -> Any:
        if node is torch.Tensor:
            return next(following)
        kind, content = node
        if kind is dict:
            return {key: build(each) for key, each in content.items()}
        return content if kind is object else kind(build(each) for each in content)

    return build(plan)
