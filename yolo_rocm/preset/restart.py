"""Starting in time: a program whose variables come too late starts itself again with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from ..hardware import detect
from ..utils.off_switch import enabled
from . import variables as environ
from .resolve import resolve

RESTARTED_VARIABLE: Final = "YOLO_ROCM_RESTARTED"


def restart_if_late(
    preset: str | Path | Mapping[str, Any] | None = "auto", rocm: Mapping[str, Any] | None = None, device: Any = None
) -> list[environ.Decision]:
    """Start this program again if a preset's variables come too late in this process.

    For programs that own their process, such as `yolo-rocm train`. Nothing happens where all of them are in time.

    Args:
        preset: As for `load_preset`.
        rocm: Sections over it.
        device: Ultralytics' `device` argument.

    Returns:
        What becomes of each variable.
    """
    machine = detect()
    decisions = environ.plan(resolve(preset, rocm, machine=machine).preset, machine, device) if enabled() else []
    missed = {decision.name: decision.value for decision in environ.late(decisions)}
    before = {name for name in os.environ.get(RESTARTED_VARIABLE, "").split(",") if name}
    # One that it has been started again for is late for good: whatever makes it late will make it late again.
    if missed.keys() - before:
        environment = {**os.environ, **missed, RESTARTED_VARIABLE: ",".join(sorted({*before, *missed}))}
        become([sys.executable, *sys.orig_argv[1:]], environment)
    return decisions


@contextmanager
def in_time(preset: str | Path | Mapping[str, Any] | None = "auto") -> Iterator[None]:
    """Hold a preset's variables while a program uses the GPU without a training of its own, as benchmarks do."""
    with environ.applied(restart_if_late(preset), needs_gpu=False):
        yield


def become(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Give this process over to another program; what was printed so far is printed first."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if os.name == "nt":
        # exec on Windows starts a second process and ends the first: the shell would not wait for it. Ctrl-C reaches
        # both; the other one handles it.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            sys.exit(subprocess.run(command, env=dict(environment), check=False).returncode)
        finally:
            signal.signal(signal.SIGINT, before)
    os.execve(command[0], command, dict(environment))
