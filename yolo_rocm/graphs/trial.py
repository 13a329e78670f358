"""How long passes take, and how far two of them are apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, TypeVar

import torch

_REPEATS: Final = 3
T = TypeVar("T")


def departure_of(found: Sequence[torch.Tensor | None], expected: Sequence[torch.Tensor | None]) -> float:
    """Return how far results are apart: the largest distance of two tensors, relative to their length as vectors."""
    if [each is None for each in found] != [each is None for each in expected]:
        return torch.inf
    pairs = [(a.float(), b.float()) for a, b in zip(found, expected, strict=True) if a is not None and b is not None]
    if not pairs:
        return 0.0
    lengths = torch.stack([b.norm() for _, b in pairs])
    apart = torch.stack([(a - b).norm() for a, b in pairs])
    # A gradient that is all but zero beside the others is what rounding has left of it.
    whole = lengths.clamp_min(lengths.max().item() * 1e-3 + torch.finfo(torch.float32).tiny)
    return float((apart / whole).nan_to_num(nan=torch.inf).max())


def timed(function: Callable[[], T], device: torch.device) -> tuple[float, float, T]:
    """Return the time until a function returns, until the device is done, in milliseconds: medians; and its result."""
    host, whole = [], []
    for number in range(_REPEATS + 1):
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        result = function()
        host.append(time.perf_counter() - began)
        torch.cuda.synchronize(device)
        whole.append(time.perf_counter() - began)
        if number < _REPEATS:
            del result  # which is not kept in memory beside the next
    return median(host[1:]) * 1e3, median(whole[1:]) * 1e3, result
