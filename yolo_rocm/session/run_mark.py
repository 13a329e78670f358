"""Whether code runs on behalf of a YOLO object that a session leads already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_inside: ContextVar[bool] = ContextVar("yolo_rocm_inside_a_run", default=False)


@contextmanager
def a_run() -> Iterator[None]:
    """Mark what runs in this context, in this thread, as led by a session."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


def inside_a_run() -> bool:
    """Tell whether a session leads what runs here; whatever it calls must not be led by another."""
    return _inside.get()
