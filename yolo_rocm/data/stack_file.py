"""Where a stuck worker leaves its stacks: a file that the training process can read, whatever the worker is doing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import reduction
from pathlib import Path
from typing import IO, Any, Final

_PREFIX: Final = "yolo-rocm-stacks-"
_POSIX: Final = os.name == "posix"


class StackFile:
    """A file for one worker; pickling it to a new process hands it over.

    On POSIX it has no name, so that nothing is left however the training process ends. On Windows it has one; a file
    that an earlier process left behind is removed when the next one is made.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._file: IO[bytes]
        if _POSIX:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        else:
            remove_left_behind()
            self._file = tempfile.NamedTemporaryFile(prefix=_PREFIX, buffering=0, delete=False)  # noqa: SIM115
            self._path = Path(self._file.name)

    @contextmanager
    def emptied(self) -> Iterator[IO[bytes]]:
        """Yield the open file, empty, to write to."""
        if self._file.seek(0, os.SEEK_END):  # of an earlier batch that was slow, but came
            self._file.seek(0)
            self._file.truncate()
        yield self._file

    def text(self) -> str:
        """Return what has been written."""
        with suppress(OSError, ValueError):
            self._file.seek(0)
            return self._file.read().decode(errors="replace").strip()
        return ""

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def __getstate__(self) -> dict[str, Any]:
        """Hand over the descriptor, or the name where that cannot be done."""
        return {"_path": self._path, "_file": reduction.DupFd(self._file.fileno()) if self._path is None else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the file in the worker."""
        self._path, shared = state["_path"], state["_file"]
        self._file = open(shared.detach() if self._path is None else self._path, "r+b", buffering=0)  # noqa: SIM115


def remove_left_behind() -> None:
    """Remove files of processes that were killed. Windows refuses it for one that somebody has open."""
    for file in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            file.unlink()
