"""The start method of workers, and whether they can import the main script of this process."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any, Final

WITHOUT_WORKERS: Final = "or load without workers (`workers=0`)"
_GUARD: Final = (
    "Workers need something that the script defines, so each of them imports it and would run it again instead of "
    'loading data. Put what the script does under `if __name__ == "__main__":` (functions and classes stay outside), '
    f"{WITHOUT_WORKERS}."
)
# A fork server imports once what all workers need, and has never seen the GPU. On macOS system libraries do not
# survive a fork, on Windows there is none.
DEFAULT_METHOD: Final = "forkserver" if sys.platform == "linux" else "spawn"


def main_problem() -> str | None:
    """Explain why workers that need something of the main module cannot have it, or would run the training again."""
    main: Any = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    name = getattr(getattr(main, "__spec__", None), "name", None) or ""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        return None  # a worker that imports the script: Python itself refuses to start processes there
    if main is None or getattr(sys, "frozen", False):
        return None  # a frozen program has no source to read; multiprocessing.freeze_support() is its guard
    if path is None or not os.path.exists(path) or name.rpartition(".")[2] == "__main__":
        where = path if path and os.path.exists(path) else "a notebook, standard input or `python -c`"
        return (
            f"Workers cannot find classes and functions that {where} defines: multiprocessing does not import it in "
            f"them. Move what the loader uses into a .py file of its own and import it, {WITHOUT_WORKERS}."
        )
    try:
        source = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return None if "__name__" in source else f"{os.path.basename(path)} has no main guard. {_GUARD}"
