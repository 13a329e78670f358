"""A lock between processes, by a file.

Not filelock's: importing it (4.2 with Python 3.12, say) calls a Python function for every audited event of the process
from then on. `id` is one, also where a set or a dictionary has tensors in it, and a training asks for it hundreds of
times in a step: each took 0.7 instead of 0.1 microseconds.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PAUSE_S: Final = 0.05
# A file system that has no locks: whoever writes there replaces whole files.
_NO_LOCKS: Final = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


@contextmanager
def locked(path: str | os.PathLike[str], timeout_s: float | None = None) -> Iterator[None]:
    """Hold a file while the context is open; other threads and processes that want it wait.

    The file stays, empty. A process that dies holds nothing. On a file system without locks nobody waits.

    Args:
        path: The file; its folder is there.
        timeout_s: How long to wait; None is for ever.

    Raises:
        TimeoutError: Somebody else holds it for longer.
        OSError: It can neither be made nor opened.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
    try:
        is_held = _wait(file, path, timeout_s)
        try:
            yield
        finally:
            if is_held:
                _release(file)  # not only closed: processes that were forked meanwhile have it open
    finally:
        os.close(file)


def _wait(file: int, path: str | os.PathLike[str], timeout_s: float | None) -> bool:
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        try:
            _take(file)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            if error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                raise
        else:
            return True
        if end is not None and time.monotonic() >= end:
            raise TimeoutError(f"somebody else has held {os.fspath(path)} for {timeout_s:g} s")
        time.sleep(_PAUSE_S)


if sys.platform == "win32":
    import msvcrt

    def _take(file: int) -> None:
        os.lseek(file, 0, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

    def _release(file: int) -> None:
        os.lseek(file, 0, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _take(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _release(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
