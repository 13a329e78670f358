"""Work in a process of its own, which may crash, hang or be killed; what it leaves is a file of JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..utils.child_process import end_group, own_group

ERROR: Final = "error"  # key of an answer that says why there is none
MISTAKE: Final = "mistake"  # the same, where the user can correct it
_END_S: Final = 5.0
_SAID: Final = 1 << 14


@dataclass(frozen=True)
class Ended:
    """What became of a process.

    Attributes:
        answer: What it has found; empty where it has found nothing.
        error: Why there is no answer.
        mistake: Whether that is something the user can correct.
    """

    answer: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    mistake: bool = False


def run_apart(
    module: str,
    settings: Mapping[str, Any],
    limit_s: float,
    env: Mapping[str, str] | None = None,
) -> Ended:
    """Run `python -m MODULE SETTINGS ANSWER` and return its answer, whatever becomes of it.

    Args:
        module: Its `main` is given the settings, and returns the answer: see `answered`.
        settings: What JSON can hold.
        limit_s: Seconds after which it is killed with all its children.
        env: Environment variables over those of this process.
    """
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(part for part in (package, os.environ.get("PYTHONPATH")) if part)
    # Nothing may be installed behind the user's back: pip could replace the torch of the card.
    environ = {**os.environ, "YOLO_AUTOINSTALL": "false", **(env or {}), "PYTHONPATH": path}
    with tempfile.TemporaryDirectory(prefix="yolo-rocm-", ignore_cleanup_errors=True) as folder:
        answer, log = Path(folder) / "answer.json", Path(folder) / "log"
        command = [sys.executable, "-m", module, json.dumps(settings), str(answer)]
        with log.open("wb") as file:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environ, **own_group()
                )
            except OSError as error:
                return Ended(error=f"the process did not start: {error}")
            over = True
            try:
                process.wait(limit_s)
                over = False
            except subprocess.TimeoutExpired:
                pass
            finally:
                gone = end_group(process, _END_S)
        if over:
            more = "" if gone else ", and it cannot be killed"
            return Ended(error=f"no answer within {limit_s:.0f} s (a hang, or kernels that compile for longer){more}")
        return _read(answer, log, process.returncode)


def _read(answer: Path, log: Path, code: int) -> Ended:
    try:
        found = json.loads(answer.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Ended(error=f"{_end_in_words(code)}{_last_words(log)}")
    for key in (ERROR, MISTAKE):
        if key in found:
            return Ended(error=str(found[key]), mistake=key == MISTAKE)
    return Ended(found)


def _end_in_words(code: int) -> str:
    if code < 0:
        known = -code in set(signal.Signals)
        return f"the process was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"
    return f"the process ended with exit code {code}"


def _last_words(log: Path) -> str:
    text = log.read_bytes()[-_SAID:].decode("utf-8", errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""


def answered(main: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Run the `main` of a module that `run_apart` has started, and leave its answer; what it raises is one too."""
    from ..errors import YoloRocmError
    from ..utils.atomic import no_room, write_file

    settings, place = json.loads(sys.argv[1]), Path(sys.argv[2])
    try:
        answer = main(settings)
    except Exception as error:
        import traceback

        traceback.print_exc()
        told = str(error) if isinstance(error, YoloRocmError) else f"{type(error).__name__}: {_one_line(error)}"
        if no_room(error):
            told = f"the disk is full ({_one_line(error)})"
        answer = {MISTAKE if isinstance(error, YoloRocmError) else ERROR: told}
    write_file(place, json.dumps(answer))


def _one_line(error: BaseException) -> str:
    return " ".join(" ".join(str(error).split()).encode("ascii", "ignore").decode().split())[:300]
