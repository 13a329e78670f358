"""Launches of a loss's kernels, those of each size made once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import torch

from ..engines.triton.call import Call
from ..engines.triton.launch import Launch
from .kernels import calls

OPERATOR: Final = "loss"  # what quarantined kernels belong to
# A batch has as many targets as its fullest image: another number each time. Later ones take Triton's own way.
_MOST_REMEMBERED: Final = 1024
_launches: dict[Hashable, Launch] = {}


def launch(kernel: str, sizes: tuple[Any, ...], tensors: tuple[torch.Tensor, ...]) -> None:
    """Launch a kernel.

    Args:
        kernel: Name of what describes its launch in `kernels.calls`.
        sizes: What that takes.
        tensors: Those of the kernel, in its order.
    """
    key = (kernel, sizes, tensors[0].device, *(each.dtype for each in tensors))
    found = _launches.get(key)
    if found is None:
        call: Call = getattr(calls, kernel)(*sizes)
        room = len(_launches) < _MOST_REMEMBERED
        found = Launch((OPERATOR, key) if room else None, call)
        if room:
            _launches[key] = found
    found(*tensors)


def forget() -> None:
    """Make all launches anew."""
    _launches.clear()
