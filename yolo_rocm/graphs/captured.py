"""One forward and one backward pass, recorded as device graphs, and replayed as a function of autograd.

Gradients of parameters come in memory that the next step writes to, in its forward pass already. An optimizer that has
taken its step does not mind; a gradient that is still there when the next step begins, as in gradient accumulation, is
moved away first. What the network returns is overwritten by the next step in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import compress
from typing import Any

import torch

from ..engines.autocast import autocast_dtype
from .pool import GraphPool
from .tree import flattened, rebuilt

Gradient = torch.Tensor | None
Passes = tuple[list[torch.Tensor], list[Gradient]]  # what a network returns, and the gradients of its parameters
Run = Callable[[torch.Tensor], Any]


class Captured:
    """A network's two passes for one shape.

    Args:
        run: The network's forward pass; it is not held.
        x: An input; each later one has its shape, data type, layout and device.
        model: The network, nothing of which is held but parameters.
        state: Every other tensor that a pass changes; it is left as it was.
        grads: A gradient for each tensor that the network returns; None for those to which the loss sends none.
        pool: Memory and stream.

    Attributes:
        are_fixed: Which of what the network returns have no gradient.
        is_outgrown: Whether a step was computed without the graph, because the loss did something else than before.

    Raises:
        RuntimeError: As torch raises it, where the passes cannot be recorded.
        TypeError: The network returns what cannot be recorded.
    """

    def __init__(
        self,
        run: Run,
        x: torch.Tensor,
        model: torch.nn.Module,
        state: Sequence[torch.Tensor],
        grads: Sequence[Gradient],
        pool: GraphPool,
    ) -> None:
        self._parameters, self._state, self.pool = trained(model), list(state), pool
        self.is_outgrown = False
        self._x = x.detach().clone(memory_format=torch.preserve_format)
        self._grad_outputs = [None if grad is None else grad.detach().clone() for grad in grads]
        with ExitStack() as undo:
            undo.enter_context(kept(state, x.device))
            leaves = undo.enter_context(_fresh_leaves(model))
            # Weights are cast where they are used: a cast from before the recording would not be part of it.
            undo.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
            torch.set_autocast_cache_enabled(False)
            with pool.side_stream():  # libraries and kernels take their workspaces
                gradients(flattened(run(self._x))[0], leaves, self._grad_outputs)
            self._forward, (outputs, self._plan) = pool.recorded(lambda: flattened(run(self._x)))
            self._backward, self._grads = pool.recorded(lambda: gradients(outputs, leaves, self._grad_outputs))
        self.are_fixed = [not each.requires_grad for each in outputs]
        self._outputs = [each.detach() for each in outputs]
        self._autocast = autocast_dtype(x.device.type)

    def __call__(self, run: Run, x: torch.Tensor) -> Any:
        """Return what the network returns for an input; `run` is its forward pass as before."""
        return rebuilt(self._plan, _Replay.apply(self, run, x, *self._parameters))  # type: ignore[no-untyped-call]

    def replay_both(self) -> Passes:
        """Launch both passes with what is in their memory, and return what they write there."""
        self._forward.replay()
        self._backward.replay()
        return self._outputs, self._grads

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Replay the forward pass."""
        self._x.copy_(x)
        self._forward.replay()
        self._versions = [each._version for each in self._outputs]
        return tuple(each.detach() for each in self._outputs)

    def backward(self, run: Run, grads: Sequence[Gradient]) -> list[Gradient]:
        """Replay the backward pass and return the gradients of the parameters, until the next step."""
        changed = any(each._version != version for each, version in zip(self._outputs, self._versions, strict=True))
        if changed or [grad is None for grad in grads] != [grad is None for grad in self._grad_outputs]:
            self.is_outgrown = True
            return self._once_more(run, grads)
        for place, grad in zip(self._grad_outputs, grads, strict=True):
            if place is not None and grad is not None:
                place.copy_(grad)
        self._backward.replay()
        return [None if each is None else each.detach() for each in self._grads]

    def move_gradients(self) -> None:
        """Give parameters memory of their own for gradients that are in that of the recorded pass."""
        for parameter, ours in zip(self._parameters, self._grads, strict=True):
            grad = parameter.grad
            if grad is not None and ours is not None and grad.data_ptr() == ours.data_ptr():
                parameter.grad = grad.clone()

    def _once_more(self, run: Run, grads: Sequence[Gradient]) -> list[Gradient]:
        """Compute the step without a graph: the loss uses other outputs than before, or has changed one in place."""
        with torch.enable_grad(), kept(self._state, self._x.device):
            with torch.autocast(self._x.device.type, self._autocast, enabled=self._autocast is not None):
                outputs = flattened(run(self._x))[0]
            return gradients(outputs, self._parameters, grads)


class _Replay(torch.autograd.Function):
    """The two passes as autograd sees them."""

    @staticmethod
    def forward(
        ctx: Any, captured: Captured, run: Run, x: torch.Tensor, *parameters: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.captured, ctx.run, ctx.step = captured, run, captured.pool.begin()
        outputs = captured.forward(x)
        ctx.mark_non_differentiable(*compress(outputs, captured.are_fixed))
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Gradient) -> tuple[Gradient, ...]:
        captured, run = ctx.captured, ctx.run
        if captured is None:
            raise RuntimeError("backward ran a second time; set step.graph: off")
        ctx.captured = ctx.run = None  # a loss that somebody keeps does not keep the graphs
        captured.pool.end(captured.move_gradients)
        return None, None, None, *captured.backward(run, grads)


def gradients(
    outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], grads: Sequence[Gradient]
) -> list[Gradient]:
    """Return the gradients of leaves, by those of what a network has returned; None has none."""
    asked = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if grad is not None]
    with torch.autocast("cuda", enabled=False):  # a backward pass is not under autocast
        return list(torch.autograd.grad([o for o, _ in asked], leaves, [g for _, g in asked], allow_unused=True))


def trained(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters that want a gradient."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@contextmanager
def kept(state: Sequence[torch.Tensor], device: torch.device) -> Iterator[None]:
    """Leave tensors, and the generators of random numbers, as they were."""
    before = [each.detach().clone() for each in state]
    try:
        with torch.random.fork_rng(devices=[device]):
            yield
    finally:
        with torch.no_grad():
            for each, old in zip(state, before, strict=True):
                if not torch.equal(each, old):  # or a graph that has it would find it changed
                    each.copy_(old)


@contextmanager
def _fresh_leaves(model: torch.nn.Module) -> Iterator[list[torch.Tensor]]:
    """Let a model compute with new leaves in the memory of its parameters while the context is open.

    Where the graph of an earlier step is still alive, as by a loss that somebody keeps, the node that adds up the
    gradient of a parameter belongs to the stream of that step, and a recording on another stream fails there.

    Yields:
        A leaf for each parameter that wants a gradient, in the order of `model.parameters()`.
    """
    leaves = {id(parameter): torch.nn.Parameter(parameter.detach()) for parameter in trained(model)}
    # Setting attributes would be seen by the module.
    held = [module._parameters for module in model.modules()]
    before = [(own, name, each) for own in held for name, each in own.items() if id(each) in leaves]
    try:
        for own, name, parameter in before:
            own[name] = leaves[id(parameter)]
        yield list(leaves.values())
    finally:
        for own, name, parameter in before:
            own[name] = parameter
