"""How many threads torch computes with on the CPU, for as long as something is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads_of_a_training(device: str) -> Iterator[None]:
    """Compute on the CPU with as many threads as a training on `device` has.

    Ultralytics asks for one by `OMP_NUM_THREADS` before it imports torch, unless the user has asked for another number,
    and for all again where the device is a CPU. A benchmark that has imported torch first would measure the GPU next to
    a pool of threads that no training has.
    """
    before = torch.get_num_threads()
    if not device.startswith("cpu") and not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
