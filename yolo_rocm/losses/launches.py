"""Launches of a loss's kernels, those of each size made once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import torch

from ..engines.device_state import STATE
from ..engines.triton.call import Call
from ..engines.triton.launch import Launch
from .kernels import calls

OPERATOR: Final = "loss"  # what quarantined kernels belong to
# Of each kernel. A batch has as many targets as its fullest image: another number each time. Later ones take Triton's
# own way.
_MOST_REMEMBERED: Final = 1024
_launches: dict[str, dict[Hashable, Launch]] = STATE.container({})


def launch(kernel: str, sizes: tuple[Any, ...], tensors: tuple[torch.Tensor, ...]) -> None:
    """Launch a kernel.

    Args:
        kernel: Name of what describes its launch in `kernels.calls`.
        sizes: What that takes.
        tensors: Those of the kernel, in its order.
    """
    known = _launches.setdefault(kernel, {})
    key = (sizes, tensors[0].device, *(each.dtype for each in tensors))
    found = known.get(key)
    if found is None:
        call: Call = getattr(calls, kernel)(*sizes)
        room = len(known) < _MOST_REMEMBERED
        found = Launch((OPERATOR, kernel, key) if room else None, call)
        if room:
            known[key] = found
    found(*tensors)
