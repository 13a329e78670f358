"""Ultralytics' own defaults, read from its file: importing it imports torch, and a preset's variables come first."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..utils.limited_files import UnreadableError, read_yaml


def yolo_defaults() -> dict[str, Any]:
    """Return Ultralytics' arguments with their defaults; none where it is not installed."""
    spec = find_spec("ultralytics")
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        try:
            return dict(read_yaml(Path(place) / "cfg" / "default.yaml"))
        except (OSError, UnreadableError):
            continue
    return {}
