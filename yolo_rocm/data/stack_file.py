"""Where a stuck worker leaves its stacks: a file that the training process can read, whatever the worker is doing."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from multiprocessing import reduction
from typing import IO, Any


class StackFile:
    """A file for one worker, without a name, so that nothing is left however the training process ends.

    Pickling it to a new process hands it over. On Windows that cannot be done: the stacks go to the terminal.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = tempfile.TemporaryFile(buffering=0) if os.name == "posix" else None  # noqa: SIM115

    def emptied(self) -> IO[Any] | None:
        """Return the open file, empty, to write to; None where there is neither a file nor a console."""
        if self._file is not None and self._file.seek(0, os.SEEK_END):  # of an earlier batch that was slow, but came
            self._file.seek(0)
            self._file.truncate()
        return self._file or sys.stderr

    def text(self) -> str:
        """Return what has been written."""
        with suppress(OSError, ValueError, AttributeError):
            self._file.seek(0)  # type: ignore[union-attr]
            return self._file.read().decode(errors="replace").strip()  # type: ignore[union-attr]
        return ""

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()

    def __getstate__(self) -> Any:
        """Hand over the descriptor."""
        return {"_file": None if self._file is None else reduction.DupFd(self._file.fileno())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the file in the worker."""
        shared = state["_file"]
        self._file = None if shared is None else open(shared.detach(), "r+b", buffering=0)  # noqa: SIM115
