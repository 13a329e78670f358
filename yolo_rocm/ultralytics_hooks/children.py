"""Processes that Ultralytics starts by itself, brought under the same preset."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from .probes import CHILDREN, missing

_CLI_MODULE: Final = "ultralytics.cfg.__init__"


class _Children:
    """Environments for child processes; the newest one decides. Counted like the loader policies."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.stack: list[Mapping[str, str]] = []
        self.replaced: list[Any] = []


_children = _Children()


@contextmanager
def children_follow(environment: Mapping[str, str]) -> Iterator[None]:
    """Let the `yolo` processes that tune and multi-data-set training start run under the same preset.

    Ultralytics starts `python -m ultralytics.cfg.__init__ ...`, or `yolo ...` in its oldest releases; here it becomes
    `python -m yolo_rocm.child ...`.
    """
    if missing(CHILDREN):
        yield
        return
    from ultralytics.engine import trainer, tuner

    with _children.lock:
        if not _children.stack:
            _children.replaced = [module for module in (trainer, tuner) if hasattr(module, "subprocess")]
            shim = types.SimpleNamespace(**{**vars(subprocess), "run": _run_child})
            for module in _children.replaced:
                module.subprocess = shim
        _children.stack.append(environment)
    try:
        yield
    finally:
        with _children.lock:
            _children.stack.remove(environment)
            if not _children.stack:
                for module in _children.replaced:
                    module.subprocess = subprocess


def _run_child(command: Any, *args: Any, **kwargs: Any) -> Any:
    environments = list(_children.stack)
    parts = list(command) if environments and isinstance(command, list | tuple) else []
    if parts[:1] == ["yolo"]:
        parts[:1] = [sys.executable, "-m", _CLI_MODULE]
    if _CLI_MODULE in parts:
        command = ["yolo_rocm.child" if part == _CLI_MODULE else part for part in parts]
        kwargs["env"] = {**(kwargs.get("env") or os.environ), **environments[-1]}
    return subprocess.run(command, *args, **kwargs)


def run_command_line(arguments: list[str]) -> None:
    """Run Ultralytics' own command line in this process."""
    from ultralytics.cfg import entrypoint

    sys.argv = ["yolo", *arguments]
    entrypoint()
