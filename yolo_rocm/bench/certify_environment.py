"""The variables of a certification: shipped presets alone, a cache of its own, and kernels that are compiled.

What the owner has chosen for trainings of their own, and what an earlier doctor has learned, has no part in a
certificate; and nothing is left in the owner's folders.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from ..preset.select import PRESET_VARIABLE

# Triton's interpreter computes on the CPU, whatever device was asked for.
_DROPPED: Final = (PRESET_VARIABLE, "TRITON_INTERPRET")
_ENDS: Final = ("SIGTERM", "SIGHUP")  # Windows has no SIGHUP


@contextmanager
def own_variables() -> Iterator[None]:
    """Set the variables of this process, which all others inherit, while the context is open."""
    with tempfile.TemporaryDirectory(prefix="yolo-rocm-certify-", ignore_cleanup_errors=True) as folder:
        own = {"YOLO_ROCM_CONFIG": str(Path(folder, "config")), "YOLO_ROCM_CACHE": str(Path(folder, "cache"))}
        before = {name: os.environ.pop(name, None) for name in (*_DROPPED, *own)}
        os.environ.update(own)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


@contextmanager
def ended_by_exception() -> Iterator[None]:
    """Let the signals that ask this process to end raise SystemExit: child processes and folders are cleaned up."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {}
    for name in _ENDS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
            before[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
