"""Where this package keeps what it has learned, and how to write there so that readers never see half a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Return where measurements are kept; `YOLO_ROCM_CACHE` overrides it."""
    chosen = os.environ.get("YOLO_ROCM_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("yolo_rocm"))


def replace_file(path: Path, text: str) -> None:
    """Write a whole new file and put it in place in one step: readers see the old one or the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
