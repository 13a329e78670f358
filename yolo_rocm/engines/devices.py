"""The device that a kernel is compiled for, measured on and launched on: the one its tensors are on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeVar

import torch

from .device_state import STATE

T = TypeVar("T")
# The number of torch's current device, and the handle of its current stream on a device by number. None where torch was
# built without GPUs.
current_device: Final[Any] = getattr(torch._C, "_cuda_getDevice", None)
current_stream: Final[Any] = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def on(device: torch.device | str) -> AbstractContextManager[object]:
    """Make a GPU the current one for a while.

    Triton compiles for the current device, and events, streams and sleeps without a device of their own are its too.
    With an integrated GPU as number 0 that is not where a training runs.
    """
    device = torch.device(device)
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@STATE.cached(64)
def processors(device: str) -> int:
    """Return how many multiprocessors a device has."""
    if not device.startswith("cuda"):
        return 1
    return int(torch.cuda.get_device_properties(torch.device(device)).multi_processor_count)


def alive(device: torch.device | str) -> bool:
    """Return whether a device still computes: after a fault a GPU refuses everything for the rest of the process."""
    device = torch.device(device)
    if device.type != "cuda":
        return True
    try:
        with on(device):
            torch.cuda.synchronize(device)
            return float(torch.ones(64, device=device).sum()) == 64.0
    except torch.cuda.OutOfMemoryError:  # full, but it has just answered
        return True
    except Exception:  # whatever a runtime says
        return False


def outside_capture(device: torch.device, make: Callable[[], T]) -> T:
    """Return what `make` makes on a device, in memory that may be kept for the rest of the process.

    Whoever records device graphs gives them a memory pool of their own, and Inductor refuses what stays in it. Such a
    pool serves the thread or the stream that records, so this takes another thread and another stream.
    """
    if device.type != "cuda":
        return make()

    def work() -> T:
        with on(device), torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
            made = make()
            torch.cuda.current_stream(device).synchronize()
        return made

    with ThreadPoolExecutor(1) as other:
        return other.submit(work).result()
