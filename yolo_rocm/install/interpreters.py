"""Pythons that are on this machine: found by name, and tried, because a name may lead nowhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_SECONDS: Final = 20
# Debian and Ubuntu leave ensurepip out of their Python, and `-m venv` fails without it.
_PROBE: Final = "import ensurepip, venv, sys; print('%d.%d' % sys.version_info[:2])"


def find(versions: Sequence[str], system: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the first version that can make an environment here, and the words that start it; None where none can.

    Args:
        versions: Versions that will do, such as `3.12`, the best one first.
        system: `linux`, `windows` or `macos`.
    """
    for version in versions:
        for words in _names(version, system):
            if version_of(words) == version:
                return version, words
    return None


def usual(version: str, system: str) -> tuple[str, ...]:
    """Return the words that usually start a version, for a page that is read on any machine."""
    return next(iter(_launchers(version, system)))


def version_of(words: Sequence[str]) -> str | None:
    """Return the version that words start, such as `3.12`; None where they start no Python with `venv`."""
    try:
        done = subprocess.run(
            [*words, "-c", _PROBE], capture_output=True, text=True, timeout=_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _launchers(version: str, system: str) -> Iterator[tuple[str, ...]]:
    if system == "windows":
        yield ("py", f"-{version}")
    else:
        yield (f"python{version}",)


def _names(version: str, system: str) -> Iterator[tuple[str, ...]]:
    """Yield words that may start a version: what people type first, then files that are on no path."""
    for words in _launchers(version, system):
        if shutil.which(words[0]):
            yield words
    if system == "windows":
        return
    yield ("python3",)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from ((str(path),) for path in sorted(root.glob(f"versions/{version}.*/bin/python{version}"), reverse=True))
    yield from ((str(path),) for path in sorted(_uv_folder().glob(f"cpython-{version}.*/bin/python{version}")))


def _uv_folder() -> Path:
    given = os.environ.get("UV_PYTHON_INSTALL_DIR")
    return Path(given) if given else Path.home() / ".local/share/uv/python"
