"""Handing a session to a child process: described in its environment, built again from there."""

from __future__ import annotations

import json
import os
from typing import Any, Final

from ..utils.child_process import python_path
from .current_run import OngoingRun
from .session import Session

CHILD_VARIABLE: Final = "YOLO_ROCM_CHILD"


def describe(run: OngoingRun) -> dict[str, str]:
    """Return the variables a child process needs to make the same run again."""
    path = python_path(os.environ.get("PYTHONPATH"))
    preset = {"preset": run.session.source, "rocm": run.session.rocm}
    facts = {**preset, "device": run.device, "workers": run.workers, "parent": os.getpid()}
    return {CHILD_VARIABLE: json.dumps(facts, default=str), "PYTHONPATH": path}


def described() -> tuple[Session, dict[str, Any], int | None]:
    """Return the session that a parent process has described, the arguments of its run, and the id of that process."""
    facts = json.loads(os.environ.get(CHILD_VARIABLE, "{}"))
    arguments = {name: facts.get(name) for name in ("device", "workers")}
    return Session(facts.get("preset") or "auto", facts.get("rocm")), arguments, facts.get("parent")
