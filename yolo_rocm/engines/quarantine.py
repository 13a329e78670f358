"""Quarantined kernels: those that failed, or gave a wrong result, on a device are not used there again."""

from __future__ import annotations

import threading

import torch

from ..utils.log_lines import log
from .device_state import STATE

_lock = threading.Lock()
_reasons: dict[tuple[str, str, str, torch.dtype], str] = STATE.container({})


def quarantine_reason(operator: str, device: str, kernel: str, dtype: torch.dtype) -> str | None:
    """Say why a kernel, or a tile by its algorithm's name, is quarantined on a device; None where it is not."""
    return _reasons.get((operator, device, kernel, dtype))


def quarantine_kernel(operator: str, device: str, kernel: str, dtype: torch.dtype, why: str) -> None:
    """Disable a kernel on a device for the rest of the process, with one line in the log."""
    with _lock:
        if (operator, device, kernel, dtype) not in _reasons:
            _reasons[operator, device, kernel, dtype] = why
            log("kernel.quarantined", "kernel '%s' is left out on %s for %s: %s", kernel, device, dtype, why)
