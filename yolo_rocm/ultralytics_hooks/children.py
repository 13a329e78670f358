"""Processes that Ultralytics starts by itself, brought under the same preset."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ..in_force import InForce

_CLI_MODULE: Final = "ultralytics.cfg.__init__"


class _Children(InForce[Mapping[str, str]]):
    """Environments for child processes, and the modules of Ultralytics that start them through us."""

    replaced: list[Any]


_children = _Children()


@contextmanager
def children_follow(environment: Mapping[str, str]) -> Iterator[None]:
    """Let the `yolo` processes that tune and multi-data-set training start run under the same preset.

    Ultralytics starts `python -m ultralytics.cfg.__init__ ...`; here it becomes `python -m yolo_rocm.child ...`.
    """
    from ultralytics.engine import trainer, tuner

    with _children.lock:
        if not _children:
            _children.replaced = [module for module in (trainer, tuner) if hasattr(module, "subprocess")]
            shim = types.SimpleNamespace(**{**vars(subprocess), "run": _run_child})
            for module in _children.replaced:
                module.subprocess = shim
        _children.add(environment)
    try:
        yield
    finally:
        with _children.lock:
            _children.remove(environment)
            if not _children:
                for module in _children.replaced:
                    module.subprocess = subprocess


def _run_child(command: Any, *args: Any, **kwargs: Any) -> Any:
    environment = _children.decisive()
    if environment is not None and isinstance(command, list | tuple) and _CLI_MODULE in command:
        command = ["yolo_rocm.child" if part == _CLI_MODULE else part for part in command]
        kwargs["env"] = {**(kwargs.get("env") or os.environ), **environment}
    return subprocess.run(command, *args, **kwargs)


def run_command_line(arguments: list[str]) -> None:
    """Run Ultralytics' own command line in this process."""
    from ultralytics.cfg import entrypoint

    sys.argv = ["yolo", *arguments]
    entrypoint()
