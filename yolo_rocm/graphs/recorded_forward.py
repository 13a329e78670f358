"""One forward pass of a network that only computes, recorded as a device graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .captured import Run
from .pool import GraphPool
from .tree import flattened, rebuilt


class RecordedForward:
    """A network's forward pass for one shape.

    Each replay writes to the same memory; what is handed out is a copy of it, which nobody overwrites.

    Args:
        run: The forward pass; it is not held.
        x: An input; each later one has its shape, data type and device.
        layout: Layout that the network computes in: that of the memory its inputs are copied to.
        held: Tensors that the pass reads besides, kept alive: a replay reads them where they were.
        pool: Memory and stream.

    Raises:
        RuntimeError: As torch raises it, where the pass cannot be recorded.
        TypeError: The network returns what cannot be recorded.
    """

    def __init__(
        self, run: Run, x: torch.Tensor, layout: torch.memory_format, held: Sequence[torch.Tensor], pool: GraphPool
    ) -> None:
        with torch.inference_mode(False):  # each later call writes to it, whatever mode this one has
            self._x = x.detach().clone(memory_format=layout)
        self._held = list(held)
        with pool.side_stream():
            run(self._x)  # libraries and kernels take their workspaces
        self._graph, (self._outputs, self._plan) = pool.recorded(lambda: flattened(run(self._x)))

    def __call__(self, x: torch.Tensor) -> Any:
        """Return what the network returns for an input."""
        self._x.copy_(x)
        self._graph.replay()
        return rebuilt(self._plan, [each.clone() for each in self._outputs])
