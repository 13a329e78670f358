"""Ultralytics' own defaults, read from its file: importing it imports torch, and a preset's variables come first."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..utils.limited_files import UnreadableError, read_yaml


def yolo_defaults() -> dict[str, Any]:
    """Return Ultralytics' arguments with their defaults; none where it is not installed."""
    try:
        return dict(read_yaml(own_file("default.yaml")))
    except (OSError, UnreadableError):
        return {}


def own_file(name: str) -> Path:
    """Return the path of a configuration file that comes with Ultralytics, whether or not it is there."""
    spec = find_spec("ultralytics")
    places = (spec.submodule_search_locations if spec is not None else None) or [""]
    return Path(places[0]) / "cfg" / name
