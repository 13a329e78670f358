"""A terminal that a test reads."""

from __future__ import annotations

import os


def all_of(descriptor: int) -> str:
    """Return everything written to the other side of a pty until that is closed, and close this one."""
    told = b""
    while True:
        try:
            piece = os.read(descriptor, 1 << 16)  # a piece at a time, however much there is
        except OSError:  # Linux: the other side is closed
            break
        if not piece:
            break
        told += piece
    os.close(descriptor)
    return told.decode()
