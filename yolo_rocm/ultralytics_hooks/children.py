"""Processes that Ultralytics starts by itself, brought under the same preset."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from ..utils.scoped_patch import attribute
from .probes import CHILDREN, missing

_CLI_MODULE: Final = "ultralytics.cfg.__init__"
_LAUNCHERS: Final = ("torch.distributed.run", "torch.distributed.launch")
# A launcher ends its ranks when it is told to; it gives them 30 s before it kills them (torch.distributed.elastic).
_LAUNCHER_PATIENCE: Final = 40.0


@contextmanager
def children_follow(environment: Mapping[str, str]) -> Iterator[None]:
    """Let the `yolo` processes that tune and multi-data-set training start run under the same preset, and every rank.

    Ultralytics starts `python -m ultralytics.cfg.__init__ ...`, or `yolo ...` in its oldest releases; here it becomes
    `python -m yolo_rocm.launch.child ...`. For several GPUs it starts `python -m torch.distributed.run ... FILE`; the
    ranks become `-m yolo_rocm.launch.rank FILE`.
    """
    if missing(CHILDREN):
        yield
        return

    def follow(original: Any) -> Any:
        return types.SimpleNamespace(**{**vars(subprocess), "run": partial(_run_child, environment)})

    with ExitStack() as undo:
        for name in ("ultralytics.engine.trainer", "ultralytics.engine.tuner"):
            if hasattr(importlib.import_module(name), "subprocess"):
                undo.enter_context(attribute(name, "subprocess").on(follow))
        yield


def _run_child(described: Mapping[str, str], command: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(command, list | tuple):
        return subprocess.run(command, *args, **kwargs)
    environment = {**(kwargs.get("env") or os.environ), **described}
    if any(name in command for name in _LAUNCHERS):
        ranks = [*command[:-1], "--module", "yolo_rocm.launch.rank", command[-1]]
        return _launch(ranks, environment)
    parts = [sys.executable, "-m", _CLI_MODULE, *command[1:]] if command[:1] == ["yolo"] else list(command)
    if _CLI_MODULE in parts:
        command = ["yolo_rocm.launch.child" if part == _CLI_MODULE else part for part in parts]
        kwargs["env"] = environment
    return subprocess.run(command, *args, **kwargs)


def _launch(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Run a launcher to its end.

    `subprocess.run` would kill it at Ctrl-C, and a killed launcher leaves its ranks behind: here it is asked to end.
    """
    with subprocess.Popen(command, env=dict(environment)) as launcher:
        try:
            code = launcher.wait()
        except BaseException:
            launcher.terminate()
            try:
                launcher.wait(_LAUNCHER_PATIENCE)
            except subprocess.TimeoutExpired:
                launcher.kill()
            raise
    if code:
        raise subprocess.CalledProcessError(code, command)
    return subprocess.CompletedProcess(command, code)


def run_command_line(arguments: list[str]) -> None:
    """Run Ultralytics' own command line in this process."""
    from ultralytics.cfg import entrypoint

    sys.argv = ["yolo", *arguments]
    entrypoint()
