"""Sessions in other processes: described in the environment of a child, or pickled with a trainer's callbacks."""

from __future__ import annotations

import atexit
import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..utils.off_switch import enabled

if TYPE_CHECKING:
    from .session import Session

CHILD_VARIABLE: Final = "YOLO_ROCM_CHILD"
_resident: Session | None = None


def describe(session: Session, workers: int | None) -> dict[str, str]:
    """Return the variables a child process needs to build the same session again."""
    here = str(Path(__file__).parents[2])  # a child must find this package however this process found it
    path = os.pathsep.join(part for part in (os.environ.get("PYTHONPATH"), here) if part)
    told = {"preset": session.source, "rocm": session.rocm, "device": session.device, "workers": workers}
    return {CHILD_VARIABLE: json.dumps({**told, "parent": os.getpid()}, default=str), "PYTHONPATH": path}


def described() -> tuple[Session, int | None]:
    """Return the session that a parent process has described, and the id of that process."""
    from .session import Session

    told = json.loads(os.environ.get(CHILD_VARIABLE, "{}"))
    session = Session(told.get("preset") or "auto", told.get("rocm"), device=told.get("device"))
    session.given_workers = told.get("workers")
    return session, told.get("parent")


def resident() -> Session | None:
    """Return the session that leads this whole process, as it does in the ranks of a distributed training."""
    return _resident


def settle(session: Session) -> None:
    """Apply a session until this process ends, and let it take the place of every session that travels here."""
    global _resident
    held = ExitStack()
    held.enter_context(session.active())
    atexit.register(held.close)
    _resident = session


def arrive(state: dict[str, Any]) -> Session:
    """Build a session that was pickled. A process of Ultralytics' launcher is taken over by the first that arrives.

    That process may be any rank, and only rank 0 is told when its training begins.
    """
    if _resident is not None:
        return _resident
    from .. import ultralytics_hooks as hooks
    from .session import Session

    session = Session.__new__(Session)
    session.__setstate__(state)
    if hooks.runs_launched_file() and enabled():
        settle(session)
        session.lays_arguments = True
    return session
