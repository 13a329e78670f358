"""Memory and stream of a model's device graphs, and what has to be put right after a recording that failed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")


class _Step:
    """Stands for a forward pass whose backward pass may still come; it lives as long as autograd's graph does."""


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return the one stream of a device that is recorded: what is kept for a stream, workspaces say, is kept once."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class GraphPool:
    """Memory that all graphs of a model share: only one of their steps is going on at a time.

    Args:
        device: Where.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = torch.device(device.type, device.index if device.index is not None else 0)
        self._handle = torch.cuda.graph_pool_handle()
        self._stream = _stream(self._device)
        self._pending: weakref.ref[_Step] | None = None
        self._at_next: weakref.WeakMethod[Callable[[], object]] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether activations of a step are still needed for its backward pass."""
        return self._pending is not None and self._pending() is not None

    def begin(self) -> _Step:
        """Begin a step; it is over after `end`, or when nobody can run its backward pass any more."""
        at_next = None if self._at_next is None else self._at_next()
        if at_next is not None:
            at_next()
        self._at_next = None
        step = _Step()
        self._pending = weakref.ref(step)
        return step

    def end(self, at_next: Callable[[], object]) -> None:
        """End the step that is going on.

        Args:
            at_next: A method, called when the next one begins, before it writes to the memory of this one. It is held
                weakly: what is recorded holds the pool.
        """
        self._pending, self._at_next = None, weakref.WeakMethod(at_next)

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """Compute on the stream that is recorded while the context is open."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            current.wait_stream(self._stream)

    def recorded(self, function: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        """Record what a function launches; return the graph and what the function has returned.

        Raises:
            RuntimeError: As torch raises it, where something cannot be recorded.
        """
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        gc.collect()  # a graph that is freed while another one is recorded may end the process on AMD
        torch.cuda.empty_cache()
        collects = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.stream(self._stream):
                try:
                    # Loaders copy to the device from threads of their own, which only a recording of the whole process
                    # minds.
                    graph.capture_begin(pool=self._handle, capture_error_mode="thread_local")
                    result = function()
                except BaseException:
                    with suppress(RuntimeError):
                        self._end(graph)
                    raise
                self._end(graph)
        finally:
            if collects:
                gc.enable()
        return graph, result

    def _end(self, graph: torch.cuda.CUDAGraph) -> None:
        """End a recording. One that failed leaves torch as if it went on, which is put right here.

        Otherwise no memory is given back to the device any more, the pool's least of all, and numbers cannot be drawn.
        """
        try:
            graph.capture_end()
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        number = self._device.index
        # As torch.cuda.use_mem_pool does it; the second name is that of torch before 2.8.
        ends = ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool")
        end = next((found for name in ends if (found := getattr(torch._C, name, None)) is not None), None)
        if end is not None:
            with suppress(RuntimeError):  # it has ended: graphs that fail after that give their part back themselves
                end(number, self._handle)
                torch._C._cuda_releasePool(number, self._handle)
        # Whoever records keeps the numbers, see `captured.kept`.
        torch.cuda.default_generators[number].graphsafe_set_state(torch.Generator(self._device))
