"""Which way was the fastest: remembered for each model file, image size, batch, set of devices and software."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from .._version import __version__
from ..diagnosis.vulkan import vulkan_devices
from ..hardware import Machine
from ..utils.atomic import write_file
from ..utils.file_lock import locked
from ..utils.limited_files import read_json
from ..utils.log_lines import log
from ..utils.paths import cache_folder
from .exported import digest
from .measure import Measured
from .ways import Way

_LOCK_S: Final = 10.0
_PACKAGES: Final = ("ncnn", "onnxruntime", "openvino", "torchvision")


class Choices:
    """What was chosen before, in a file of the cache folder; one that cannot be read or written is only slower."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or cache_folder()) / "predict.json"

    def get(self, key: str) -> tuple[Way, str] | None:
        """Return the way that was chosen, and its numbers in words."""
        try:
            found = self._read()[key]
            return Way(**found["way"]), str(found["words"])
        except (KeyError, TypeError):
            return None

    def put(self, key: str, way: Way, words: str) -> None:
        """Remember a choice."""
        self._write(key, {"way": asdict(way), "words": words})

    def forget(self, key: str) -> None:
        """Forget a choice that has failed."""
        self._write(key, None)

    def _read(self) -> dict[str, Any]:
        try:
            found = read_json(self.path)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log(
                "predict.unreadable",
                "chosen engines in %s cannot be read (%s): they will be measured again",
                self.path,
                error,
            )
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, key: str, value: Any) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(f"{self.path}.lock", _LOCK_S):
                entries = {name: entry for name, entry in {**self._read(), key: value}.items() if entry is not None}
                write_file(self.path, json.dumps(entries, indent=1, sort_keys=True))
        except OSError as error:
            log(
                "predict.not_kept",
                "the chosen engine cannot be kept in %s (%s): the next run measures again",
                self.path,
                error,
            )


def key_of(machine: Machine, weights: Path, preset: str, asked: dict[str, Any]) -> str:
    """Return what a choice depends on.

    Args:
        machine: Its GPUs and packages.
        weights: The model; another file of the same content is the same model.
        preset: The preset's name.
        asked: Engine, device, image size and batch.
    """
    packages = {name: machine.packages.version(name) for name in _PACKAGES}
    facts = {
        "weights": digest(weights),
        **asked,
        "preset": preset,
        "gpus": [str(gpu) for gpu in machine.gpus],
        "vulkan": [device.name for device in vulkan_devices()] if packages["ncnn"] else [],
        "cores": machine.cores,
        "torch": machine.torch,
        "ultralytics": machine.ultralytics,
        **{name: version for name, version in packages.items() if version is not None},
        "yolo_rocm": __version__,
    }
    return json.dumps(facts, sort_keys=True, default=str)


def in_words(row: Measured, first: Measured) -> str:
    """Return the numbers of a choice for one line."""
    assert row.median_ms is not None
    assert row.agreement is not None
    return (
        f"{row.median_ms:.1f} ms a call, torch on the CPU {first.median_ms:.1f} ms; {row.agreement.share:.3f} of "
        f"{row.agreement.objects} objects the same"
    )
