"""How long a sampled step takes by class of operator, from marks in the stream of the device.

torch's profiler would tell kernels apart, but on ROCm its start has hung whole processes (vllm-project/vllm#54087), and
where it starts after HIP it has seen no kernel (pytorch/kineto#1338): nothing that a training may risk for its report.
So it is done with what layers are timed with: a mark in the device's stream where modules and nodes of the backward
pass begin and end. The time between two marks goes to the class of what has ended; gaps in which the device waits for
the host are in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from ..conv.step_timer import Mark, mark, milliseconds, passed
from .classes import ACTIVATION, CLASSES, CONVOLUTION, LOSS, NORMALISATION, OPTIMIZER, OTHER, class_of
from .places import LOSS as LOSS_DONE
from .places import NETWORK
from .places import OPTIMIZER as OPTIMIZER_DONE


class ClassTimer:
    """The marks of one step. Whoever runs the step says what it has reached.

    Args:
        model: The network. A compiled one calls no modules.
        device: Where it computes.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._device = device
        self._kinds = {id(module): kind for module in model.modules() if (kind := _kind(module)) is not None}
        self._whole = {id(module) for module in model.modules() if id(module) in self._kinds and _is_leaf(module)}
        self._marks: list[tuple[str, Mark]] = []
        self._last_of_network: int | None = None
        self._in_loss = False
        self._watching = ExitStack()

    def begin(self) -> None:
        """Begin the step. The hooks are torch's global ones: nothing is attached to the model."""
        hooks = nn.modules.module
        self._watching.callback(hooks.register_module_forward_pre_hook(self._module_starts).remove)
        self._watching.callback(hooks.register_module_forward_hook(self._module_ends).remove)
        self._mark(OTHER)

    def reached(self, place: str, value: Any) -> None:
        """Note a place of the step.

        Args:
            place: One of `places`.
            value: What the network has returned, or the loss; None elsewhere.
        """
        if place == NETWORK:
            self._network_is_done(value)
        elif place == LOSS_DONE:
            self._loss_is_done(value)
        else:  # clipping and all else that belongs to the optimizer's step is in it
            self._mark(OPTIMIZER if place == OPTIMIZER_DONE else OTHER)

    def _network_is_done(self, output: Any) -> None:
        """Take what the network has returned: what is computed from it is the loss."""
        self._watching.close()
        self._mark(OTHER)
        nodes: list[Any] = [tensor.grad_fn for tensor in _tensors(output) if tensor.grad_fn is not None]
        if nodes and all(hasattr(node, "_sequence_nr") and hasattr(node, "register_prehook") for node in nodes):
            self._last_of_network = max(node._sequence_nr() for node in nodes)

    def _loss_is_done(self, loss: torch.Tensor) -> None:
        """Take the loss, before its backward pass."""
        self._mark(LOSS)
        if self._last_of_network is None or loss.grad_fn is None:
            return
        self._in_loss = True
        for node in _nodes(loss.grad_fn):
            # Also that of a node which only adds up the gradient of a parameter: the highest there is.
            if node._sequence_nr() > self._last_of_network:
                continue
            kind = class_of(node.name())
            node.register_prehook(self._node_starts)
            if kind != OTHER:
                node.register_hook(lambda *gradients, kind=kind: self._mark(kind))

    def end(self) -> None:
        """End the step; safe to call twice."""
        self._watching.close()
        self._mark(OTHER)

    def abandon(self) -> None:
        """Stop to watch a step that ended in an error."""
        self._watching.close()

    def has_passed(self) -> bool:
        """Return whether all marks can be read without waiting."""
        return all(passed(moment) for _, moment in self._marks)

    def result(self) -> dict[str, float]:
        """Return milliseconds by class; nothing where network, loss and optimizer were not told apart."""
        if self._last_of_network is None:
            return {}
        spent = dict.fromkeys(CLASSES, 0.0)
        for (_, began), (kind, ended) in pairwise(self._marks):
            spent[kind] += milliseconds(began, ended)
        return spent

    def _mark(self, kind: str) -> None:
        self._marks.append((kind, mark(self._device)))

    def _module_starts(self, module: nn.Module, inputs: Any) -> None:
        if id(module) in self._whole:
            self._mark(OTHER)

    def _module_ends(self, module: nn.Module, inputs: Any, output: Any) -> None:
        kind = self._kinds.get(id(module))
        if kind is not None:
            self._mark(kind)

    def _node_starts(self, gradients: Any) -> None:
        # Nodes run in the reverse of the order in which they were made: those of the loss first.
        kind, self._in_loss = LOSS if self._in_loss else OTHER, False
        self._mark(kind)


def _is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def _kind(module: nn.Module) -> str | None:
    """Return the class of what a module has computed when it ends; None where that is nothing of its own.

    A block of ours ends with BatchNorm and activation as one, which calls neither of these modules.
    """
    if isinstance(module, nn.modules.conv._ConvNd):
        return CONVOLUTION
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return NORMALISATION
    if _is_leaf(module):
        return ACTIVATION if class_of(type(module).__name__) == ACTIVATION else None
    return NORMALISATION if isinstance(module._modules.get("bn"), nn.Module) else None


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested containers."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        for each in tree.values():
            yield from _tensors(each)
    elif isinstance(tree, list | tuple):
        for each in tree:
            yield from _tensors(each)


def _nodes(root: Any) -> Iterator[Any]:
    """Yield every node of a backward pass once."""
    seen, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        yield node
        new = {following for following, _ in node.next_functions if following is not None} - seen
        seen |= new
        waiting += new
