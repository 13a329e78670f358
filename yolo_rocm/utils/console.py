"""Consoles for terminals and pipes that honour NO_COLOR, and a stdout that is kept for JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

# A pipe has no width to wrap at: tables keep one line per row there.
_WIDE = 240


def is_terminal(stream: TextIO) -> bool:
    """Return whether lines written to a stream can be overwritten, whatever FORCE_COLOR says about colours."""
    try:
        return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    except ValueError:  # closed
        return False


def console(*, stderr: bool = False, file: TextIO | None = None) -> Console:
    """Return a console for people.

    With NO_COLOR it writes no styles at all: rich alone would keep bold, an escape sequence in somebody's log.
    """
    from rich.console import Console

    stream = file or (sys.stderr if stderr else sys.stdout)
    width = None if stream is not None and stream.isatty() else _WIDE
    options: dict[str, Any] = {"color_system": None} if os.environ.get("NO_COLOR") else {}
    return Console(stderr=stderr, file=file, soft_wrap=True, highlight=False, emoji=False, width=width, **options)


@contextmanager
def stdout_for_json(wanted: bool = True) -> Iterator[None]:
    """Keep stdout clean while the block runs: what libraries and child processes write to it goes to stderr.

    Args:
        wanted: False leaves everything as it is.
    """
    if not wanted:
        yield
        return
    try:
        sys.stdout.flush()
        kept = os.dup(1)
    except (AttributeError, OSError):  # no console: there is nobody to write to
        yield
        return
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def print_json(data: Any) -> None:
    """Write one JSON document to stdout, without colours wherever it goes."""
    sys.stdout.write(json.dumps(data, indent=2, default=str, allow_nan=False) + "\n")
    sys.stdout.flush()
