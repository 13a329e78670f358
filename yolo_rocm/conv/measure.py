"""Time a call on its device, and the error of a result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

# Long enough for Python to enqueue a whole pass behind it, so that events see the device's time and no launch gaps.
_HEAD_START_CYCLES = 1_000_000


def milliseconds(call: Callable[[], object], device: torch.device, repeats: int = 5, give_up: float = 0.0) -> float:
    """Return the median time of `call` after two warm-ups.

    Args:
        call: What to time.
        device: Where it runs; a GPU is timed by events, anything else by the clock.
        repeats: Number of timed calls.
        give_up: Stop after the first timed call where it took this many milliseconds; 0 never gives up.
    """
    call()
    call()
    times: list[float] = []
    for _ in range(repeats):
        times.append(_once_on_gpu(call) if device.type == "cuda" else _once(call))
        if give_up and times[0] > give_up:
            break
    return sorted(times)[len(times) // 2]


def _once_on_gpu(call: Callable[[], object]) -> float:
    cuda: Any = torch.cuda  # its events have no types
    start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    cuda._sleep(_HEAD_START_CYCLES)
    start.record()
    call()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop))


def _once(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3


def relative_error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the distance from the fp64 result relative to its size; NaN where either holds one."""
    if exact.numel() == 0:
        return 0.0
    return float((value.double() - exact).norm() / exact.norm().clamp_min(1e-300))
