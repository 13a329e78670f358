"""`yolo-rocm run`: a script, a module or the `yolo` command in a Python of its own, under a preset.

This process becomes that Python. It gets the preset's variables from its very start, and by way of PYTHONPATH a
`sitecustomize` that lets Ultralytics follow the preset once it is imported. So what the target sees of `__main__`, its
arguments, standard input, signals and exit code is Python's own, and processes it starts are under the preset too.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NoReturn

from ..errors import ConfigError
from ..hardware import detect
from ..hardware.libraries import missing_stack
from ..preset import variables as environ
from ..preset.resolve import resolve
from ..preset.restart import become
from ..session.given import CHILD_VARIABLE
from ..utils.off_switch import enabled

# Says which environment the preset is for; `startup/sitecustomize.py` reads it.
RUN_VARIABLE: Final = "YOLO_ROCM_RUN"
_STARTUP: Final = Path(__file__).parent / "startup"
# Ultralytics takes a program called `yolo` for its command line, which saves predictions by default.
_YOLO: Final = "import sys; sys.argv[0] = 'yolo'; from ultralytics.cfg import entrypoint; sys.exit(entrypoint())"


def run_target(words: Sequence[str], preset: str = "auto", rocm: Mapping[str, Any] | None = None) -> NoReturn:
    """Become a Python that runs a target under a preset.

    Args:
        words: `script.py ARGS...`, `-m module ARGS...`, `- ARGS...` or `yolo ARGS...`.
        preset: A preset's name, `auto` or a YAML file.
        rocm: Sections over it.

    Raises:
        YoloRocmError: The preset is wrong, there is no such script, or Python's own options keep the preset out.
    """
    command = [sys.executable, *interpreter_options(), *python_arguments(words)]
    become(command, environment(preset, rocm, _device(words)))


def python_arguments(words: Sequence[str]) -> list[str]:
    """Return the arguments for Python that run a target.

    Raises:
        ConfigError: There is no such script.
        StackError: The target is `yolo`, and torch or Ultralytics is not installed.
    """
    target, *arguments = words
    if target == "yolo":
        return [*_yolo(), *arguments]
    if target.startswith("-"):  # a module, or standard input
        return list(words)
    if not Path(target).exists():
        raise ConfigError(
            f"there is no script {target!r}. `yolo-rocm run` takes a Python file, `-m MODULE`, or `yolo` with its own "
            "words; leave out a `python` before them."
        )
    return list(words)


def _yolo() -> list[str]:
    lacking = missing_stack()
    if lacking is not None:
        raise lacking
    script = Path(sysconfig.get_path("scripts")) / "yolo"
    is_script = script.is_file() and script.read_bytes().startswith(b"#!")
    return [str(script)] if is_script else ["-c", _YOLO]


def _device(words: Sequence[str]) -> str | None:
    """Return the device a `yolo` command names; where it names GPUs, none is hidden from it."""
    if words[0] != "yolo":
        return None
    return next((word.partition("=")[2] for word in reversed(words) if word.startswith("device=")), None)


def interpreter_options() -> list[str]:
    """Return the options this Python was given before `-m yolo_rocm`; those of an installed `yolo-rocm` are its own.

    Raises:
        ConfigError: Among them is one that keeps the preset out.
    """
    words = list(sys.orig_argv[1:])
    options: list[str] = []
    for word, following in pairwise(words):
        if word.startswith("-") and word.endswith("m") and following == "yolo_rocm":
            options = [*words[: words.index(word)], *([word[:-1]] if word != "-m" else [])]
            break
    if options and (sys.flags.ignore_environment or sys.flags.no_site):
        raise ConfigError(
            "Python's options -I, -E and -S keep the preset out of the script. Start yolo-rocm without them."
        )
    return options


def environment(preset: str, rocm: Mapping[str, Any] | None, device: str | None = None) -> dict[str, str]:
    """Return the environment of a Python under a preset; that of this process where `YOLO_ROCM=0` turns everything off.

    Raises:
        PresetError: The preset is wrong.
    """
    if not enabled():
        return dict(os.environ)
    machine = detect()
    decisions = environ.plan(resolve(preset, rocm, machine=machine).preset, machine, device)
    late = environ.late(decisions)  # for this process; in time for the next one
    with environ.applied(decisions, needs_gpu=False):
        variables = {**os.environ, **{decision.name: decision.value for decision in late}}
    # The script may change its folder before it comes to Ultralytics.
    source = str(Path(preset).resolve()) if Path(preset).suffix in {".yaml", ".yml"} else preset
    path = [str(_STARTUP), *(place for place in [os.environ.get("PYTHONPATH")] if place)]
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join(path),
        RUN_VARIABLE: sys.prefix,
        CHILD_VARIABLE: json.dumps({"preset": source, "rocm": rocm}, default=str),
    }
