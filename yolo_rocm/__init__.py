"""Train Ultralytics YOLO on AMD GPUs, even where MIOpen is broken.

Importing this package loads neither torch nor Ultralytics and changes nothing; every spawned data-loading worker
imports it again.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .api import Registration, callbacks, register, train
    from .conv.report import ConvReport
    from .conv.seam import patch, patched, unpatch
    from .data.create import create_dataloader, patch_dataloader
    from .data.main_guard import setup_multiprocessing
    from .data.seeding import seed_everything
    from .data.verify import verify_reproducibility
    from .data.worker_count import recommended_workers
    from .diagnosis.doctor import Diagnosis, doctor
    from .diagnosis.findings import Finding
    from .errors import CheckpointError, ConfigError, EngineError, LoaderError, PresetError, StackError, YoloRocmError
    from .preset.schema import Preset, load_preset, presets

_HOMES = {
    "Registration": "api",
    "callbacks": "api",
    "register": "api",
    "train": "api",
    "ConvReport": "conv.report",
    "patch": "conv.seam",
    "patched": "conv.seam",
    "unpatch": "conv.seam",
    "create_dataloader": "data.create",
    "patch_dataloader": "data.create",
    "seed_everything": "data.seeding",
    "verify_reproducibility": "data.verify",
    "setup_multiprocessing": "data.main_guard",
    "recommended_workers": "data.worker_count",
    "Diagnosis": "diagnosis.doctor",
    "doctor": "diagnosis.doctor",
    "Finding": "diagnosis.findings",
    "CheckpointError": "errors",
    "ConfigError": "errors",
    "EngineError": "errors",
    "LoaderError": "errors",
    "PresetError": "errors",
    "StackError": "errors",
    "YoloRocmError": "errors",
    "Preset": "preset.schema",
    "load_preset": "preset.schema",
    "presets": "preset.schema",
}

__all__ = [
    "CheckpointError",
    "ConfigError",
    "ConvReport",
    "Diagnosis",
    "EngineError",
    "Finding",
    "LoaderError",
    "Preset",
    "PresetError",
    "Registration",
    "StackError",
    "YoloRocmError",
    "__version__",
    "callbacks",
    "create_dataloader",
    "doctor",
    "load_preset",
    "patch",
    "patch_dataloader",
    "patched",
    "presets",
    "recommended_workers",
    "register",
    "seed_everything",
    "setup_multiprocessing",
    "train",
    "unpatch",
    "verify_reproducibility",
]


if not TYPE_CHECKING:  # a type checker would take every name for one that exists

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'yolo_rocm' has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{home}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
