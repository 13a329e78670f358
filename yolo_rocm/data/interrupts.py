"""Ctrl-C at a terminal reaches every process of the group; the training process answers it, and ends its workers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_CAN_BLOCK: Final = hasattr(signal, "pthread_sigmask")


@contextmanager
def blocked() -> Iterator[None]:
    """Start processes that are deaf to Ctrl-C until they call `ignore`; this process hears of it afterwards."""
    if not _CAN_BLOCK:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore() -> None:
    """Ignore Ctrl-C in this process, which is a worker's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _CAN_BLOCK:
        # What it starts in its turn would be deaf as well.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
