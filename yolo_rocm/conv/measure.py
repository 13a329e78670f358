"""Time a call on its device, and the error of a result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import torch

# The device is kept busy while Python enqueues a pass, so that events see the device's time and no launch gaps: for
# twice the time that enqueueing took in the warm-up, within these limits.
_HEAD_START_MS = (0.3, 8.0)


def milliseconds(
    call: Callable[[], object],
    device: torch.device,
    repeats: int = 5,
    give_up: float = 0.0,
    head_start: bool = True,
) -> float:
    """Return the median time of `call` after two warm-ups.

    Args:
        call: What to time.
        device: Where it runs; a GPU is timed by events, anything else by the clock.
        repeats: Number of timed calls.
        give_up: Stop after the first timed call where it took this many milliseconds; 0 never gives up.
        head_start: Leave out launch gaps, as in a training step, where Python runs ahead of the GPU. Not for a call
            that launches so much that Python can never be ahead of it.
    """
    on_gpu = device.type == "cuda"
    call()
    if on_gpu:
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    call()
    enqueueing = (time.perf_counter() - started) * 1e3
    can_wait = head_start and hasattr(torch.cuda, "_sleep")
    wait = min(max(2 * enqueueing, _HEAD_START_MS[0]), _HEAD_START_MS[1]) if can_wait else 0.0
    times: list[float] = []
    for _ in range(repeats):
        times.append(_once_on_gpu(call, device, wait) if on_gpu else _once(call))
        if give_up and times[0] > give_up:
            break
    return sorted(times)[len(times) // 2]


def _once_on_gpu(call: Callable[[], object], device: torch.device, wait: float) -> float:
    cuda: Any = torch.cuda  # its events have no types
    start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    if wait:
        cuda._sleep(int(wait * _cycles_per_millisecond(device)))
    start.record()
    call()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop))


@lru_cache(maxsize=16)
def _cycles_per_millisecond(device: torch.device) -> float:
    """Return how many cycles of `_sleep` make a millisecond: shader clocks on one GPU, a slow counter on another."""
    cuda: Any = torch.cuda
    cycles = 200_000
    cuda._sleep(cycles)
    start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    cuda._sleep(cycles)
    stop.record()
    stop.synchronize()
    return cycles / max(1e-3, float(start.elapsed_time(stop)))


def _once(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3


@contextmanager
def as_in_the_seam() -> Iterator[None]:
    """Run code as kernels run: below autograd, where a view costs no bookkeeping, and in IEEE fp32 without TF32.

    TF32 is NVIDIA's; AMD GPUs have none, and with it one side of a comparison would compute something else.
    """
    matmul, conv = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    below: Any = torch._C._AutoDispatchBelowAutograd()
    try:
        # torch 1.13 is below autograd while the object lives; newer ones want it entered.
        with torch.no_grad(), below if hasattr(below, "__enter__") else nullcontext():
            yield
    finally:
        del below
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, conv


def relative_error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the distance from the fp64 result relative to its size; NaN where either holds one."""
    if exact.numel() == 0:
        return 0.0
    return float((value.double() - exact).norm() / exact.norm().clamp_min(1e-300))
