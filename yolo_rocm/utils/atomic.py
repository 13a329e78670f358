"""The one writer of whole files: readers see the old file or the new one, also after a crash or on a full disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Final

_NO_ROOM: Final = tuple(getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name))


def write_file(
    path: Path,
    content: str | bytes | memoryview | Callable[[Path], object],
    *,
    durable: bool = False,
) -> bool:
    """Write a whole new file next to `path`, then rename it to `path` in one step. Nothing is left after an error.

    Writers of one path take turns: they hold a lock, or there is only one.

    Args:
        path: Where the file belongs, in a folder that exists.
        content: Text, which becomes UTF-8, or bytes, or a function that writes the file to the path it is given.
        durable: Wait until the disk has it, so that not even a power failure can leave a name without its content.

    Returns:
        Whether there was anything to write: False where the function has written no file.
    """
    staged = partial(path)
    try:
        if callable(content):
            content(staged)
            if not staged.exists():
                return False
        else:
            staged.write_bytes(content.encode() if isinstance(content, str) else content)
        if durable:
            _sync(staged, os.O_RDWR)
        os.replace(staged, path)
    except BaseException:
        with suppress(OSError):
            staged.unlink()
        raise
    if durable and os.name == "posix":  # Windows cannot open folders, and some file systems cannot sync them
        with suppress(OSError):
            _sync(path.parent, os.O_RDONLY)
    return True


def partial(path: Path) -> Path:
    """Return the name under which a file is written before it is whole. One name, so that remains never add up."""
    return Path(path.parent) / f".{path.name}.partial"


def _sync(path: Path, flags: int) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def no_room(error: BaseException) -> bool:
    """Return whether an error means that the disk, or the user's quota of it, is full."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def free_bytes(folder: Path) -> int | None:
    """Return how much room there is where a folder is, or would be; None if the system does not say."""
    for place in (folder, *folder.absolute().parents):
        if place.is_dir():
            with suppress(OSError):
                return shutil.disk_usage(place).free
            return None
    return None


def problem_with(folder: Path) -> OSError | None:
    """Try whether files can be written in a folder that may not exist yet; everything made to find out is removed."""
    missing: list[Path] = []
    trial = folder / ".yolo-rocm-trial"  # on Windows `tempfile` tries other names for hours where none can be written
    try:
        missing.extend(takewhile(lambda place: not place.is_dir(), (folder, *folder.absolute().parents)))
        folder.mkdir(parents=True, exist_ok=True)
        try:
            trial.write_bytes(b"1")
        finally:
            with suppress(OSError):
                trial.unlink()
    except OSError as error:
        return error
    finally:
        for place in missing:
            with suppress(OSError):
                place.rmdir()
    return None
