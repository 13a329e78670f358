"""One forward and one backward pass, recorded as device graphs, and replayed as a function of autograd.

Gradients of parameters come in memory that the next replay writes again. An optimizer that has taken its step does not
mind; a gradient that is still there when the next one comes, as in gradient accumulation, is moved away first.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch

from .tree import flattened, rebuilt

Run = Callable[[torch.Tensor], Any]
_WARM_UP: Final = 1  # libraries take their workspaces, and kernels their rooms, on the stream that is recorded


class _Step:
    """Stands for a forward pass whose backward pass may still come; it lives as long as autograd's graph does."""


class Pool:
    """Memory that all graphs of a model share: only one of their steps is going on at a time.

    Args:
        device: Where.
    """

    def __init__(self, device: torch.device) -> None:
        self.handle = torch.cuda.graph_pool_handle()  # type: ignore[no-untyped-call]
        self.stream = torch.cuda.Stream(device)
        self._pending: weakref.ref[_Step] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether activations of a step are still needed for its backward pass."""
        return self._pending is not None and self._pending() is not None

    def begin(self) -> _Step:
        """Begin a step; it is over after `end`, or when nobody can run its backward pass any more."""
        step = _Step()
        self._pending = weakref.ref(step)
        return step

    def end(self, step: _Step) -> None:
        """End a step.

        Raises:
            RuntimeError: It was over already: what backward needs is overwritten.
        """
        if self._pending is None or self._pending() is not step:
            raise RuntimeError(
                "backward of a recorded step for the second time, or after another step: set step.graph: off"
            )
        self._pending = None


class Captured:
    """A network's two passes for one shape.

    Args:
        run: The network's forward pass.
        x: An input; each later one has its shape, data type, layout and device.
        parameters: What gradients are wanted of.
        state: Every other tensor that a pass changes; it is left as it was.
        used: Of each tensor that the network returns, whether the loss sends a gradient back.
        pool: Memory and stream.

    Raises:
        RuntimeError: As torch raises it, where the passes cannot be recorded.
        TypeError: The network returns what cannot be recorded.
    """

    def __init__(
        self,
        run: Run,
        x: torch.Tensor,
        parameters: Sequence[torch.Tensor],
        state: Sequence[torch.Tensor],
        used: Sequence[bool],
        pool: Pool,
    ) -> None:
        self._run, self._parameters, self._state, self._used, self.pool = run, list(parameters), list(state), used, pool
        self._x = x.detach().clone(memory_format=torch.preserve_format)
        with kept(state, x.device), _cache_of_casts_off():
            self._warm_up()
            self._forward = torch.cuda.CUDAGraph()
            with self._recording(self._forward):
                result = run(self._x)
            outputs, self._plan = flattened(result)
            del result
            self._grad_outputs = [torch.zeros_like(each) for each in self._seen(outputs)]
            self._backward = torch.cuda.CUDAGraph()
            with torch.autocast("cuda", enabled=False), self._recording(self._backward):
                self._grads = _gradients(self._seen(outputs), self._parameters, self._grad_outputs)
        self._fixed = [not each.requires_grad for each in outputs]
        self._outputs = [each.detach() for each in outputs]

    def __call__(self, x: torch.Tensor) -> Any:
        """Return what the network returns for an input."""
        return rebuilt(self._plan, _Replay.apply(self, x, *self._parameters))

    def replay_both(self) -> None:
        """Launch both passes with what is in their memory, to see how long they take."""
        self._forward.replay()  # type: ignore[no-untyped-call]
        self._backward.replay()  # type: ignore[no-untyped-call]

    def _seen(self, outputs: Sequence[Any]) -> list[Any]:
        return [each for each, used in zip(outputs, self._used, strict=True) if used]

    def _warm_up(self) -> None:
        stream, current = self.pool.stream, torch.cuda.current_stream(self._x.device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                outputs = self._seen(flattened(self._run(self._x))[0])
                with torch.autocast("cuda", enabled=False):
                    _gradients(outputs, self._parameters, [torch.zeros_like(each) for each in outputs])
                del outputs
        current.wait_stream(stream)

    def _recording(self, graph: torch.cuda.CUDAGraph) -> torch.cuda.graph:
        # Loaders copy to the device from threads of their own, which only a recording of the whole process minds.
        return torch.cuda.graph(graph, pool=self.pool.handle, stream=self.pool.stream, capture_error_mode="thread_local")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Replay the forward pass."""
        self._x.copy_(x)
        self._forward.replay()  # type: ignore[no-untyped-call]
        return tuple(each.detach() for each in self._outputs)

    def fixed(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return those of the outputs that have no gradient."""
        return [each for each, fixed in zip(outputs, self._fixed, strict=True) if fixed]

    def backward(self, grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Replay the backward pass and return the gradients of the parameters."""
        if any(grad is not None and not used for grad, used in zip(grads, self._used, strict=True)):
            return self._once_more(grads)
        for place, grad in zip(self._grad_outputs, self._seen(grads), strict=True):
            if grad is None:
                place.zero_()
            else:
                place.copy_(grad)
        for parameter, ours in zip(self._parameters, self._grads, strict=True):
            grad = parameter.grad
            if grad is not None and ours is not None and grad.data_ptr() == ours.data_ptr():
                parameter.grad = grad.clone()
        self._backward.replay()  # type: ignore[no-untyped-call]
        return [None if each is None else each.detach() for each in self._grads]

    def _once_more(self, grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Compute the step without a graph: the loss has begun to use what it did not use when it was recorded."""
        with torch.enable_grad(), kept(self._state, self._x.device):
            outputs = flattened(self._run(self._x))[0]
            asked = [(each, grad) for each, grad in zip(outputs, grads, strict=True) if grad is not None]
            return _gradients([each for each, _ in asked], self._parameters, [grad for _, grad in asked])


class _Replay(torch.autograd.Function):
    """The two passes as autograd sees them."""

    @staticmethod
    def forward(ctx: Any, captured: Captured, x: torch.Tensor, *parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.captured, ctx.step = captured, captured.pool.begin()
        outputs = captured.forward(x)
        ctx.mark_non_differentiable(*captured.fixed(outputs))
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        ctx.captured.pool.end(ctx.step)
        return None, None, *ctx.captured.backward(grads)


def _gradients(
    outputs: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor], grads: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    return list(torch.autograd.grad(outputs, parameters, grads, allow_unused=True))


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
                each.copy_(old)


@contextmanager
def _cache_of_casts_off() -> Iterator[None]:
    """Cast weights where they are used: a cast from before the recording would not be part of it."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
