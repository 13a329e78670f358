"""Child processes that are ended with all of their own children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import Any


def own_group() -> dict[str, Any]:
    """Return arguments of `subprocess.Popen` that give a process a group of its own.

    Its children can be ended with it, and Ctrl-C does not reach it first.
    """
    if sys.platform == "win32":
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    return {"start_new_session": True}


def end_group(process: subprocess.Popen[bytes], patience_s: float) -> bool:
    """End a process of `own_group` with all its children, on Windows it alone; return whether it has gone.

    Args:
        process: The process. It may have ended by itself and left children.
        patience_s: Seconds to wait for it. One that the driver holds may never go.
    """
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        return False
    return True
