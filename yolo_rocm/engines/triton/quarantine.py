"""What is not used any more on a device: kernels and tiles that have failed or erred there."""

from __future__ import annotations

import logging
import threading

import torch

LOG = logging.getLogger("yolo_rocm")
_lock = threading.Lock()
_reasons: dict[tuple[str, str, torch.dtype], str] = {}


def struck_out(device: str, kernel: str, dtype: torch.dtype) -> str | None:
    """Say why a kernel, or a tile by its algorithm's name, was struck out on a device; None where it was not."""
    return _reasons.get((device, kernel, dtype))


def strike_out(device: str, kernel: str, dtype: torch.dtype, why: str) -> None:
    """Leave a kernel out on a device from now on, with one line in the log."""
    with _lock:
        if (device, kernel, dtype) not in _reasons:
            _reasons[device, kernel, dtype] = why
            LOG.warning("Triton kernel '%s' is left out on %s for %s: %s", kernel, device, dtype, why)


def forget() -> None:
    """Use everything again."""
    with _lock:
        _reasons.clear()
