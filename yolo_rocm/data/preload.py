"""Imported by the fork server before it forks: what every worker needs, read once."""

from __future__ import annotations

import os

from .light import defer_imports, import_all

defer_imports()
import_all(os.environ.get("YOLO_ROCM_PRELOAD", "torch,numpy").split(","))
