"""Modules of this package run in processes of their own, which may crash, hang or be killed; their answers are JSON."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ..errors import YoloRocmError
from .atomic import no_room, write_file
from .error_text import first_line, typed_line

Answer = dict[str, Any]

UNKILLABLE: Final = "cannot be killed"  # in the message about a process that the driver holds
_END_S: Final = 5.0
_OUTPUT_BYTES: Final = 1 << 16
# Python reports the exit codes of Windows as they are: an access violation, a failed stack check, and `abort()`.
_WINDOWS_SIGNALS: Final = {0xC0000005: "SIGSEGV", 0xC0000409: "SIGABRT", 3: "SIGABRT"}


@dataclass(frozen=True)
class ChildResult:
    """What became of a child process.

    Attributes:
        answer: Its last answer; empty where it has given none.
        error: Why there is no answer, or none after this one.
        is_mistake: Whether the error is one that the user can correct.
        unkillable: Whether the process is still there.
        output: The end of what it printed.
    """

    answer: Answer = field(default_factory=dict)
    error: str = ""
    is_mistake: bool = False
    unkillable: bool = False
    output: str = ""


def run_module(
    module: str, settings: Mapping[str, Any], limit_s: float, env: Mapping[str, str | None] | None = None
) -> ChildResult:
    """Run a module of this package in a process of its own; whatever becomes of it, nothing is raised.

    Args:
        module: Its whole name. It calls `answer_parent` when it is run.
        settings: What JSON can hold.
        limit_s: Seconds after which the process is killed with all its children.
        env: Environment variables over those of this process; None removes one.
    """
    with tempfile.TemporaryDirectory(prefix="yolo-rocm-", ignore_cleanup_errors=True) as folder:
        answer_file, log_file = Path(folder) / "answer.json", Path(folder) / "log"
        command = [sys.executable, "-m", module, json.dumps(settings), str(answer_file)]
        with log_file.open("wb") as log:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=child_environ(env), **own_group()
                )
            except OSError as error:
                return ChildResult(error=f"the process did not start: {error}")
            why = ""
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                why = f"no answer within {limit_s:.0f} s (a hang, or kernels that compile for longer)"
            finally:
                has_ended = end_group(process, _END_S)
        output = log_file.read_bytes()[-_OUTPUT_BYTES:].decode("utf-8", errors="replace")
        try:
            result = ChildResult(**json.loads(answer_file.read_text(encoding="utf-8")), output=output)
        except (OSError, ValueError):
            result = ChildResult(output=output)
        if why:
            why += "" if has_ended else f", and the process {UNKILLABLE}"
            return replace(result, error=why, is_mistake=False, unkillable=not has_ended)
        if not result.error and (process.returncode or not result.answer):
            return replace(result, error=f"the process {ending(process.returncode)}{last_lines(output, 1)}")
        return result


def answer_parent(main: Callable[[Answer], Answer | Iterable[Answer]]) -> None:
    """Run the `main` of a module that `run_module` has started; its answer or its error goes to the parent.

    Args:
        main: It is given the settings. It may be a generator: each answer replaces the one before, and the last one
            counts even if the process crashes after it.
    """
    no_crash_dialogue()
    settings, file = json.loads(sys.argv[1]), Path(sys.argv[2])
    answer: Answer = {}
    try:
        answers = main(settings)
        for answer in [answers] if isinstance(answers, dict) else answers:
            write_file(file, json.dumps({"answer": answer}))
    except Exception as error:
        import traceback

        traceback.print_exc()
        is_mistake = isinstance(error, YoloRocmError)
        why = " ".join(str(error).split()) if is_mistake else typed_line(error)
        if no_room(error):
            why = f"the disk is full ({first_line(error)})"
        write_file(file, json.dumps({"answer": answer, "error": why, "is_mistake": is_mistake}))


def child_environ(env: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Return the environment of a child: it finds this package, and nothing is installed behind the user's back.

    Args:
        env: Variables over those of this process; None removes one.
    """
    variables: dict[str, str | None] = {**os.environ, "YOLO_AUTOINSTALL": "false", **(env or {})}
    variables["PYTHONPATH"] = python_path(variables.get("PYTHONPATH"))
    return {name: value for name, value in variables.items() if value is not None}


def python_path(path: str | None = None) -> str:
    """Return a PYTHONPATH by which a child finds this package, however this process has found it.

    Args:
        path: What it has to hold too, before it.
    """
    package = str(Path(__file__).parents[2])
    return os.pathsep.join([*([path] if path else []), package])


def ending(code: int) -> str:
    """Return how a process has ended: `ended by SIGSEGV`, `ended with exit code 3`."""
    name = signal_name(code)
    if name is None:
        return f"ended with exit code {code}"
    return f"ended by {name}{f' ({code & 0xFFFFFFFF:#x})' if sys.platform == 'win32' else ''}"


def signal_name(code: int) -> str | None:
    """Return the signal that has ended a process, by its exit code as `subprocess` has it."""
    if sys.platform == "win32":
        return _WINDOWS_SIGNALS.get(code & 0xFFFFFFFF)
    if code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def last_lines(output: str, count: int) -> str:
    """Return the last lines of what a process has printed, as the end of a sentence about it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()][-count:]
    return f": {' | '.join(lines)[-400:]}" if lines else ""


def no_crash_dialogue() -> None:
    """Let this process end at once when it crashes; Windows would show a dialogue box first."""
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.kernel32.SetErrorMode(0x8003)


def own_group() -> dict[str, Any]:
    """Return arguments of `subprocess.Popen` that give a process a group of its own.

    Its children can be ended with it, and Ctrl-C does not reach it first.
    """
    if sys.platform == "win32":
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    return {"start_new_session": True}


def end_group(process: subprocess.Popen[bytes], patience_s: float) -> bool:
    """End a process of `own_group` with all its children; return whether it has gone.

    Args:
        process: The process. It may have ended by itself and left children, which Windows cannot find any more.
        patience_s: Seconds to wait for it. One that the driver holds may never go.
    """
    if sys.platform == "win32":
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, timeout=patience_s)
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        return False
    return True
