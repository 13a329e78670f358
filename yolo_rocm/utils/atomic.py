"""Files that are either the old or the new one, whole: written beside their name, then moved onto it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_NO_ROOM: Final = tuple(getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name))


def partial(path: Path) -> Path:
    """Return the name under which a file is written before it is whole. One name, so that remains never add up."""
    return Path(path.parent) / f".{path.name}.partial"


def stage(path: Path, data: bytes | memoryview, *, durable: bool = True) -> Path:
    """Write data beside `path`; nothing is left of it after an error.

    Args:
        path: Where it belongs.
        data: The content.
        durable: Wait until the disk has it, so that not even a power failure can leave a name without its content.

    Returns:
        The file to hand to `commit`.
    """
    staged = partial(path)
    with removed_on_error(staged), open(staged, "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    return staged


def commit(staged: Path, path: Path) -> None:
    """Move a staged file onto its name, in one step."""
    with removed_on_error(staged):
        os.replace(staged, path)
    _sync_folder(path.parent)


@contextmanager
def removed_on_error(file: Path) -> Iterator[None]:
    """Remove a file if what follows fails."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(file)
        raise


def sync(path: Path) -> None:
    """Wait until the disk has the content of a file."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Wait until the disk knows the new name. Windows cannot open folders, and some file systems cannot sync them."""
    if os.name == "posix":
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def no_room(error: BaseException) -> bool:
    """Tell whether an error means that the disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def free_bytes(folder: Path) -> int | None:
    """Return how much room there is where a folder lies, or would lie; None if the system does not say."""
    for place in (folder, *folder.absolute().parents):
        if place.is_dir():
            with suppress(OSError):
                return shutil.disk_usage(place).free
            return None
    return None


def problem_with(folder: Path) -> OSError | None:
    """Try whether files can be written in a folder that may not exist yet; everything made to find out is removed."""
    made: list[Path] = []
    try:
        for place in reversed([folder, *folder.absolute().parents]):
            if not place.is_dir():
                place.mkdir()
                made.append(place)
        trial = folder / ".yolo-rocm-trial"
        with removed_on_error(trial):
            trial.write_bytes(b"1")
            trial.unlink()
    except OSError as error:
        return error
    finally:
        for place in reversed(made):
            with suppress(OSError):
                place.rmdir()
    return None
