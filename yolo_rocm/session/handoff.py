"""Handing a session to a child process: described in its environment, built again from there."""

from __future__ import annotations

import json
import os
from typing import Final

from ..utils.child_process import python_path
from .session import Session

CHILD_VARIABLE: Final = "YOLO_ROCM_CHILD"


def describe(session: Session) -> dict[str, str]:
    """Return the variables a child process needs to build the same session again."""
    path = python_path(os.environ.get("PYTHONPATH"))
    told = {"preset": session.source, "rocm": session.rocm, "device": session.device, "workers": session.workers}
    return {CHILD_VARIABLE: json.dumps({**told, "parent": os.getpid()}, default=str), "PYTHONPATH": path}


def described() -> tuple[Session, int | None]:
    """Return the session that a parent process has described, and the id of that process."""
    told = json.loads(os.environ.get(CHILD_VARIABLE, "{}"))
    session = Session(told.get("preset") or "auto", told.get("rocm"), device=told.get("device"))
    session.workers = told.get("workers")
    return session, told.get("parent")
