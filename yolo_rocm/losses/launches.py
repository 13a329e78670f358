"""Launches of a loss's kernels, those of each size made once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import torch

from ..engines.bounded import Bounded
from ..engines.device_state import STATE
from ..engines.triton.launch import Launch
from .kernels import calls

OPERATOR: Final = "loss"  # what quarantined kernels belong to
# A batch has as many targets as its fullest image: another number each time.
_launches: dict[Hashable, Launch] = STATE.container(Bounded())


def launch(kernel: str, sizes: tuple[Any, ...], tensors: tuple[torch.Tensor, ...]) -> None:
    """Launch a kernel.

    Args:
        kernel: Name of what describes its launch in `kernels.calls`.
        sizes: What that takes.
        tensors: Those of the kernel, in its order.
    """
    key = (OPERATOR, kernel, sizes, tensors[0].device, *(each.dtype for each in tensors))
    known = _launches.get(key)
    if known is None:
        known = _launches[key] = Launch(key, getattr(calls, kernel)(*sizes))
    known(*tensors)
