"""Tuned choices on disk: one file per device, torch and package version; several processes may write it."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from .._version import __version__
from ..utils.atomic import write_file
from ..utils.limited_files import read_json
from ..utils.paths import cache_folder

LOG = logging.getLogger("yolo_rocm")
_LOCK_SECONDS = 10.0


def device_name(device: str) -> str:
    """Return what tells devices of different speed apart."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(torch.device(device))
    return f"cpu-{torch.get_num_threads()}-threads"


class PlanStore:
    """Choices of one device: `{problem: {pass: algorithm}}`.

    A file that cannot be read, or written, costs a log line and never a run.

    Args:
        device: The device.
        folder: Where the file is; the cache folder by default.
        kind: What is kept, as its file is called.
    """

    def __init__(self, device: str, folder: Path | None = None, kind: str = "conv") -> None:
        name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{device_name(device)}-torch{torch.__version__}-{__version__}")
        self.path = (folder or cache_folder()) / f"{kind}-{name}.json"
        self.entries: dict[str, dict[str, str]] = self._read()

    def _read(self, quiet: bool = False) -> dict[str, dict[str, str]]:
        try:
            data: Any = read_json(self.path)
            entries = data["entries"]
            for passes in entries.values():
                if not all(isinstance(name, str) for name in passes.values()):
                    raise TypeError("an entry is not a mapping of names")
            return dict(entries)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            if not quiet:
                LOG.warning("tuned choices in %s cannot be read (%s): they will be measured again", self.path, error)
            return {}

    def add(self, entries: dict[str, dict[str, str]]) -> None:
        """Remember choices, together with those other processes have written meanwhile."""
        self.entries.update(entries)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock", timeout=_LOCK_SECONDS):
                merged = {**self._read(quiet=True), **entries}
                write_file(self.path, json.dumps({"entries": merged}, indent=1, sort_keys=True))
        except (OSError, Timeout) as error:
            LOG.warning("tuned choices cannot be kept in %s (%s): the next run measures again", self.path, error)
