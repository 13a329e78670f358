"""Where this package keeps files of its own, and how to write them so that readers never see half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Return where tuned choices and the doctor's memory are kept; `YOLO_ROCM_CACHE` overrides it."""
    chosen = os.environ.get("YOLO_ROCM_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("yolo_rocm"))


def user_presets_folder() -> Path:
    """Return where a user's own presets are looked for by name; `YOLO_ROCM_CONFIG` overrides the folder above it."""
    chosen = os.environ.get("YOLO_ROCM_CONFIG")
    return (Path(chosen) if chosen else Path(platformdirs.user_config_dir("yolo_rocm"))) / "presets"


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
