"""The run that is going on in a thread."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .run import Run

CURRENT: Final[ContextVar[Run | None]] = ContextVar("yolo_rocm_run", default=None)


def current() -> Run | None:
    """Return the run that is going on in this thread."""
    return CURRENT.get()
