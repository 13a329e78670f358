"""Where this package keeps files of its own."""

from __future__ import annotations

import os
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


def is_clone(folder: Path) -> bool:
    """Return whether a folder is a clone of this project."""
    try:
        return 'name = "yolo-rocm"' in (folder / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return False
