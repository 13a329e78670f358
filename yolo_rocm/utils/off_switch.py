"""The one switch that turns the whole package off."""

from __future__ import annotations

import os


def enabled() -> bool:
    """Return whether the package is on; `YOLO_ROCM=0` in the environment turns everything off."""
    return os.environ.get("YOLO_ROCM", "1").strip().lower() not in {"0", "false", "off", "no"}
