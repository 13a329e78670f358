"""Measured plans on disk: one file per operator, device, torch and package version; several processes may write it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import torch

from .._version import __version__
from ..utils.atomic import write_file
from ..utils.file_lock import locked
from ..utils.limited_files import read_json
from ..utils.log_lines import log
from ..utils.paths import cache_folder

_LOCK_SECONDS: Final = 10.0
_SIZES: Final = re.compile(r" on (\d+(?:x\d+)*) ")
Entry = dict[str, str]


def device_name(device: str) -> str:
    """Return what distinguishes devices of different speed."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(torch.device(device))
    return f"cpu-{torch.get_num_threads()}-threads"


class PlanStore:
    """Plans of one device: `{problem: {pass: algorithm}}`.

    A file that cannot be read, or written, costs a log line and never a run.

    Args:
        device: The device.
        folder: Where the file is; the cache folder by default.
        kind: What is kept, as its file is called.
        on_disk: Whether there is a file; otherwise plans last as long as the object.

    Attributes:
        keeps: Whether later runs have the plans too: there is a file, and the last ones could be written to it.
    """

    def __init__(
        self,
        device: str,
        folder: Path | None = None,
        kind: str = "conv",
        on_disk: bool = True,
    ) -> None:
        self._on_disk = self.keeps = on_disk
        self.path = Path(f"{kind}.json")
        if on_disk:
            name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{device_name(device)}-torch{torch.__version__}-{__version__}")
            self.path = (folder or cache_folder()) / f"{kind}-{name}.json"
        self.entries: dict[str, Entry] = self._read() if on_disk else {}
        self._layers: dict[str, dict[str, str]] | None = None  # layer -> size -> key; built when it is first needed

    def _read(self, quiet: bool = False) -> dict[str, Entry]:
        try:
            data: Any = read_json(self.path)
            entries = data["entries"]
            for passes in entries.values():
                if not all(isinstance(name, str) for name in passes.values()):
                    raise TypeError("an entry is not a mapping of names")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            if not quiet:
                text = "tuned choices in %s cannot be read (%s): they will be measured again"
                log("plans.unreadable", text, self.path, error)
            return {}
        return dict(entries)

    def add(self, entries: dict[str, Entry]) -> None:
        """Remember plans, together with those other processes have written meanwhile."""
        self.entries.update(entries)
        if self._layers is not None:
            self._layers = _by_layer(entries, self._layers)
        if not self._on_disk:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(f"{self.path}.lock", _LOCK_SECONDS):
                merged = {**self._read(quiet=True), **entries}
                write_file(self.path, json.dumps({"entries": merged}, indent=1, sort_keys=True))
            self.keeps = True
        except OSError as error:
            self.keeps = False
            text = "tuned choices cannot be kept in %s (%s): the next run measures again"
            log("plans.not_kept", text, self.path, error)

    def nearest(self, key: str) -> tuple[Entry, str] | None:
        """Return the plan of the same layer at the nearest size, and that size; None where it has none."""
        if self._layers is None:
            self._layers = _by_layer(self.entries, {})  # when it is complete: other threads plan too
        layer, size = layer_and_size(key)
        known = self._layers.get(layer)
        if not known:
            return None
        near = min(tuple(known), key=lambda other: abs(math.log(_elements(other) / _elements(size))))
        return self.entries[known[near]], near


def _by_layer(keys: Iterable[str], layers: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    for key in tuple(keys):
        layer, size = layer_and_size(key)
        layers.setdefault(layer, {})[size] = key
    return layers


def layer_and_size(key: str) -> tuple[str, str]:
    """Return a problem's key without its size, and the size, such as `2x8x16x16`; see `Problem.key`."""
    found = _SIZES.search(key)
    return (key, "1") if found is None else (key[: found.start()] + key[found.end() - 1 :], found[1])


def _elements(size: str) -> int:
    return max(1, math.prod(map(int, size.split("x"))))
