"""How long passes take, and how far two of them are apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

import torch

from .captured import Gradient, Passes

_REPEATS: Final = 3


def finite(passes: Passes) -> bool:
    """Return whether nothing has overflowed."""
    return all(bool(each.isfinite().all()) for part in passes for each in part if each is not None)


def departure_of(found: Passes, expected: Passes) -> float:
    """Return how far passes are apart: the largest distance of two tensors, relative to their length as vectors."""
    largest = 0.0
    kinds: list[tuple[Sequence[Gradient], Sequence[Gradient]]] = [(found[0], expected[0]), (found[1], expected[1])]
    for ours, right in kinds:
        if [each is None for each in ours] != [each is None for each in right]:
            return torch.inf
        pairs = [(a.float(), b.float()) for a, b in zip(ours, right, strict=True) if a is not None and b is not None]
        if not pairs:
            continue
        lengths = torch.stack([b.norm() for _, b in pairs])
        apart = torch.stack([(a - b).norm() for a, b in pairs])
        # A gradient that is all but zero beside the others is what rounding has left of it.
        whole = lengths.clamp_min(float(lengths.max()) * 1e-3 + torch.finfo(torch.float32).tiny)
        largest = max(largest, float((apart / whole).nan_to_num(nan=torch.inf).max()))
    return largest


def timed(function: Callable[[], Passes], device: torch.device) -> tuple[float, float, Passes]:
    """Return the time until a function returns, until the device is done, in milliseconds: medians; and its result."""
    host, whole = [], []
    for _ in range(_REPEATS + 1):
        result = None  # which is not kept in memory beside the next
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        result = function()
        host.append(time.perf_counter() - began)
        torch.cuda.synchronize(device)
        whole.append(time.perf_counter() - began)
    assert result is not None
    return median(host[1:]) * 1e3, median(whole[1:]) * 1e3, result
