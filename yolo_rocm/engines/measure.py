"""Time a call on its device, and the error of a result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final

import torch

from .device_state import STATE
from .devices import on
from .precision import without_tf32

# How much more than its reference an algorithm may err: the native kernel, or a plain sum of as many terms.
MOST_RATIO: Final = 2.0
# The device is kept busy while Python enqueues a pass, so that events see the device's time and no launch gaps: for
# twice the time that enqueueing took in the warm-up, within these limits.
_HEAD_START_MS = (0.3, 8.0)
# Where Python cannot be ahead, calls follow each other for about this long, but not more of them than that: what a
# single call pays for beginning on an idle device is paid once.
_BURST_MS, _BURST_CALLS = 20.0, 16


def timed(
    call: Callable[[], object],
    device: torch.device,
    repeats: int = 5,
    give_up: float = 0.0,
    head_start: bool = True,
    warm: bool = False,
) -> tuple[float, float]:
    """Return the median time of the device for `call`, and the shortest that Python took, after two warm-ups.

    Python's is the time until everything is handed to the device; the same on a CPU. Both are milliseconds.

    Args:
        call: What to time.
        device: Where it runs; a GPU is timed by events, anything else by the clock.
        repeats: Number of timed calls.
        give_up: Stop after the first timed call where it took this many milliseconds; 0 never gives up.
        head_start: Leave out launch gaps, as in a training step, where Python runs ahead of the GPU. Not for a call
            that launches so much that Python can never be ahead of it: several of these are timed together.
        warm: The same has just run: one warm-up less, and none on a CPU.
    """
    on_gpu, times, hosts = device.type == "cuda", [], []
    with on(device):  # events and the head start are of the current device
        if not warm:
            call()
        if on_gpu:
            torch.cuda.synchronize(device)
        if on_gpu or not warm:
            hosts.append(_once(call))
        can_wait = on_gpu and head_start and hasattr(torch.cuda, "_sleep")
        wait = min(max(2 * hosts[0], _HEAD_START_MS[0]), _HEAD_START_MS[1]) if can_wait else 0.0
        calls = 1 if head_start or not on_gpu else min(max(round(_BURST_MS / max(hosts[0], 1e-3)), 1), _BURST_CALLS)
        for _ in range(repeats):
            on_device, on_host = _once_on_gpu(call, device, wait, calls) if on_gpu else (_once(call), 0.0)
            times.append(on_device)
            hosts.append(on_host)
            if give_up and times[0] > give_up:
                break
    median = sorted(times)[len(times) // 2]
    return median, min(hosts) if on_gpu else median


def _once_on_gpu(call: Callable[[], object], device: torch.device, wait: float, calls: int) -> tuple[float, float]:
    cuda: Any = torch.cuda  # its events have no types
    start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    if wait:
        cuda._sleep(int(wait * _cycles_per_millisecond(device)))
    start.record()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    on_host = (time.perf_counter() - began) * 1e3
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) / calls, on_host / calls


@STATE.cached(16)
def _cycles_per_millisecond(device: torch.device) -> float:
    """Return how many cycles of `_sleep` make a millisecond: shader clocks on one GPU, a slow counter on another."""
    cuda: Any = torch.cuda
    sleep = partial(cuda._sleep, 200_000)
    sleep()
    return 200_000 / max(1e-3, _once_on_gpu(sleep, device, 0.0, 1)[0])


def _once(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3


@contextmanager
def as_in_the_seam() -> Iterator[None]:
    """Run code as kernels run: below autograd and its views, where these cost no bookkeeping, and without TF32."""
    with without_tf32():
        # torch 1.13 has only the first half: there a view still knows what it is a view of.
        below: Any = getattr(torch._C, "_AutoDispatchBelowADInplaceOrView", torch._C._AutoDispatchBelowAutograd)()
        try:
            # torch 1.13 is below autograd while the object lives; newer ones want it entered.
            with torch.no_grad(), below if hasattr(below, "__enter__") else nullcontext():
                yield
        finally:
            del below


def relative_error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the distance from an exact result relative to its size; NaN where either holds one."""
    if exact.numel() == 0:
        return 0.0
    wide = torch.float64 if exact.dtype == torch.float64 else torch.float32
    exact = exact.to(wide)
    return float((value.to(wide) - exact).norm() / exact.norm().clamp_min(torch.finfo(wide).tiny))
