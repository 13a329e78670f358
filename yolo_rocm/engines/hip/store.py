"""Compiled objects on disk: one file each, named by all that it was made from; several processes may write them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from ...utils.atomic import write_file
from ...utils.file_lock import locked
from ...utils.log_lines import log
from ...utils.paths import cache_folder

_MAGIC: Final = b"yolo_rocm kernel 1\n"
_DIGEST_BYTES: Final = 32
_LOCKS: Final = 64  # lock files stay: not one for each object
_LOCK_SECONDS: Final = 300.0  # as long as a compiler may take


def key_of(*parts: str) -> str:
    """Return the name of an object from all that it is made from."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


class Store:
    """Objects in a folder. One that is damaged costs a line and is made again; a disk that is full costs a line too.

    Args:
        folder: Where they are; `kernels` in the cache folder by default.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self._folder or cache_folder() / "kernels"

    def path(self, key: str) -> Path:
        """Return the file of an object."""
        return self.folder / f"{key}.bin"

    def get(self, key: str) -> bytes | None:
        """Return an object, None where there is no whole one."""
        try:
            data = self.path(key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            text = "the compiled kernel %s cannot be read (%s): it is compiled again"
            log("hip.unreadable", text, self.path(key), error)
            return None
        head, code = data[: len(_MAGIC) + _DIGEST_BYTES], data[len(_MAGIC) + _DIGEST_BYTES :]
        if head == _MAGIC + hashlib.sha256(code).digest():
            return code
        log("hip.damaged", "the compiled kernel %s is damaged: it is compiled again", self.path(key))
        self.drop(key)
        return None

    def get_or_make(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return an object, made where there is none; processes that want the same one wait for the first to make it.

        Raises:
            CompilerError: As `make` does.
        """
        code = self.get(key)
        if code is None:
            with self._turn(key):
                code = self.get(key)
                if code is None:
                    code = make()
                    self._put(key, code)
        return code

    def drop(self, key: str) -> None:
        """Remove an object."""
        with suppress(OSError):
            self.path(key).unlink()

    def _put(self, key: str, code: bytes) -> None:
        try:
            write_file(self.path(key), _MAGIC + hashlib.sha256(code).digest() + code)
        except OSError as error:
            log("hip.not_kept", "a compiled kernel cannot be kept (%s): the next run compiles it again", error)

    @contextmanager
    def _turn(self, key: str) -> Iterator[None]:
        with ExitStack() as held:
            # No folder, or one who holds it for ever: what is made twice is right twice.
            with suppress(OSError):
                self.folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(locked(self.folder / f"lock-{int(key[:8], 16) % _LOCKS:02d}", _LOCK_SECONDS))
            yield


STORE: Final = Store()
