"""Starting worker processes: the start method, and whether the main script of this process stands it.

Standard library only: `setup_multiprocessing` is for use before torch is imported.
"""

from __future__ import annotations

import ast
import logging
import multiprocessing
import os
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError, nearest

WITHOUT_WORKERS: Final = "or load without workers (workers=0)"
_UNKNOWN: Final = object()
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class StartMethod:
    """What `setup_multiprocessing` did.

    Attributes:
        method: The start method that holds now.
        previous: The one that was set before; None where none was, and Python's default held.
        note: What the change does not reach; empty if nothing.
    """

    method: str
    previous: str | None
    note: str = ""

    def __str__(self) -> str:
        was = self.previous or "Python's default"
        return f"start method of processes: {self.method} (was {was}){f'; {self.note}' if self.note else ''}"

    def undo(self) -> None:
        """Set the start method that was set before."""
        multiprocessing.set_start_method(self.previous, force=True)


def setup_multiprocessing(method: str = "spawn") -> StartMethod:
    """Set how this process starts others, from now on. Best called first thing; calling it again is harmless.

    Args:
        method: `spawn`, `forkserver` or `fork`, as far as the system has them.

    Returns:
        What was set before, with `undo()`, and a note if torch had been imported already.

    Raises:
        ConfigError: The system has no such start method.
    """
    allowed = multiprocessing.get_all_start_methods()
    if method not in allowed:
        raise ConfigError(
            f"Start method {method!r} is not one of this system: {', '.join(allowed)}{nearest(method, allowed)}"
        )
    previous = multiprocessing.get_start_method(allow_none=True)
    note = ""
    if previous != method:
        multiprocessing.set_start_method(method, force=True)
        if "torch" in sys.modules:
            note = (
                "torch is imported already: loaders whose workers run, or which were given a start method of their "
                "own, keep theirs"
            )
    result = StartMethod(method, previous, note)
    _LOGGER.log(logging.WARNING if note else logging.DEBUG, "%s", result)
    return result


def main_guard_problem(*, uses_main: bool | None = None) -> str | None:
    """Say whether spawned workers would run the main module of this process again, or could not find it.

    A guard is whatever keeps the running code from a worker: `if __name__ == "__main__":` in its usual spellings or a
    test of the current process' name, around the call or further up. (`multiprocessing.parent_process() is None` is
    none: it still holds while a worker imports the script.)

    Args:
        uses_main: Workers are sent something that the main module defines. Without it, a session without a file
            (notebook, `python -c`) is no problem; with it, `python -m package` is one as well, because workers never
            import a `__main__.py`. None: not known; the session is reported, the package is not.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        return (
            "This process is a data-loading worker that is still importing the main script, and the script starts a "
            f'loader with workers again. Put the code that does under `if __name__ == "__main__":`, {WITHOUT_WORKERS}.'
        )
    main = sys.modules.get("__main__")
    name = getattr(getattr(main, "__spec__", None), "name", None) or ""
    path = getattr(main, "__file__", None)
    if main is None or getattr(sys, "frozen", False):
        return None  # a frozen program has no source to read; multiprocessing.freeze_support() is its guard
    elsewhere = (
        f"Move the classes and functions that the loader uses into a .py file and import them, {WITHOUT_WORKERS}."
    )
    if name == "__main__" or name.endswith(".__main__"):
        hidden = f"Workers cannot find what {path} defines: multiprocessing does not import a `__main__.py` in them. "
        return hidden + elsewhere if uses_main else None
    if path is None:
        hidden = (
            "Workers cannot find classes and functions that a notebook, an interactive session or `python -c` defines. "
        )
        return hidden + elsewhere if uses_main is not False else None
    if not os.path.exists(path):
        return (
            f"Workers import the main script, but there is no file {path!r}: a script that is read from standard input "
            f'cannot be imported. Save it and start it as a file, with `if __name__ == "__main__":`, {WITHOUT_WORKERS}.'
        )
    if Path(path).stem == "ipython":  # left alone by multiprocessing too
        return None
    return _unguarded(main, path)


def _unguarded(main: types.ModuleType, path: str) -> str | None:
    frames = [frame for frame in _frames() if frame.f_globals is vars(main) and _same(frame.f_code.co_filename, path)]
    top = [frame.f_lineno for frame in frames if frame.f_code.co_name == "<module>"]
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):  # compiled code: nothing can be said
        return None
    if not top or any(_protected(tree, frame.f_lineno) for frame in frames):
        return None
    launcher = (
        "" if path.endswith((".py", ".pyw")) else " A program's launcher is started as `python -m PROGRAM` instead."
    )
    return (
        f'{os.path.basename(path)}, line {top[0]}, starts workers outside `if __name__ == "__main__":`. Every spawned '
        "worker imports the script and would run that line again instead of loading data. Put the line under "
        f'`if __name__ == "__main__":` (functions and classes stay outside), {WITHOUT_WORKERS}.{launcher}'
    )


def _same(one: str, other: str) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def _frames() -> Iterator[types.FrameType]:
    """Yield the frames of this thread, innermost first, and of the main thread, which knows where the script stands."""
    starts = [sys._getframe()]
    if threading.current_thread() is not threading.main_thread():
        starts += [f for ident, f in sys._current_frames().items() if ident == threading.main_thread().ident]
    for start in starts:
        frame: types.FrameType | None = start
        while frame is not None:
            yield frame
            frame = frame.f_back


def _protected(tree: ast.AST, line: int) -> bool:
    """Tell whether a line is in a branch that a worker, importing the script, does not take."""
    for node in ast.walk(tree):
        branch: list[Any] = []
        if isinstance(node, ast.If):
            taken = _in_worker(node.test)
            branch = node.body if taken is False else node.orelse if taken is True else []
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.BoolOp) and _in_worker(node.value) is False:
            branch = [node]  # __name__ == "__main__" and main()
        if branch and branch[0].lineno <= line <= branch[-1].end_lineno:
            return True
    return False


def _in_worker(test: ast.expr) -> bool | None:
    """Return the value of a condition in a worker that imports the script; None where it cannot be known."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            value = _in_worker(operand)
            return None if value is None else not value
        case ast.BoolOp(op=op, values=values):
            decides, known = isinstance(op, ast.Or), [_in_worker(value) for value in values]
            return decides if decides in known else None if None in known else not decides
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            one, other = _value_in_worker(left), _value_in_worker(right)
            if one is _UNKNOWN or other is _UNKNOWN:
                return None
            match op:
                case ast.Eq() | ast.Is():
                    return bool(one == other)
                case ast.NotEq() | ast.IsNot():
                    return bool(one != other)
                case ast.In() if isinstance(other, tuple):
                    return one in other
                case ast.NotIn() if isinstance(other, tuple):
                    return one not in other
    return None


def _value_in_worker(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id="__name__"):
            return "__mp_main__"
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            values = tuple(_value_in_worker(element) for element in elements)
            return _UNKNOWN if _UNKNOWN in values else values
        case ast.Attribute(attr="name", value=ast.Call(func=function)) if "current_process" in ast.dump(function):
            return "SpawnProcess-1"
    return _UNKNOWN
