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
    from .data.seeding import seed_everything
    from .data.verify import verify_reproducibility
    from .data.worker_count import recommended_workers
    from .diagnosis.doctor import Diagnosis, doctor
    from .diagnosis.findings import Finding
    from .errors import CheckpointError, ConfigError, EngineError, LoaderError, PresetError, StackError, YoloRocmError
    from .inference.predictor import Predictor, predictor
    from .preset.files import presets
    from .preset.resolve import load_preset
    from .preset.schema import Preset

# Where each public name is defined; modules are imported when a name is first used.
_HOMES = {
    name: module
    for module, names in {
        "api": "Registration callbacks register train",
        "conv.report": "ConvReport",
        "conv.seam": "patch patched unpatch",
        "data.create": "create_dataloader patch_dataloader",
        "data.seeding": "seed_everything",
        "data.verify": "verify_reproducibility",
        "data.worker_count": "recommended_workers",
        "diagnosis.doctor": "Diagnosis doctor",
        "diagnosis.findings": "Finding",
        "errors": "CheckpointError ConfigError EngineError LoaderError PresetError StackError YoloRocmError",
        "inference.predictor": "Predictor predictor",
        "preset.files": "presets",
        "preset.resolve": "load_preset",
        "preset.schema": "Preset",
    }.items()
    for name in names.split()
}

# Spelled out for type checkers.
__all__ = [
    "CheckpointError", "ConfigError", "ConvReport", "Diagnosis", "EngineError", "Finding", "LoaderError", "Predictor",
    "Preset", "PresetError", "Registration", "StackError", "YoloRocmError", "__version__", "callbacks",
    "create_dataloader", "doctor", "load_preset", "patch", "patch_dataloader", "patched", "predictor", "presets",
    "recommended_workers", "register", "seed_everything", "train", "unpatch",
    "verify_reproducibility",
]  # fmt: skip


if not TYPE_CHECKING:  # a type checker would take every name for one that exists

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'yolo_rocm' has no attribute {name!r}")
        try:
            value = getattr(importlib.import_module(f".{home}", __name__), name)
        except ModuleNotFoundError as error:
            from .hardware.libraries import missing_stack

            lacking = missing_stack(error)
            if lacking is None:
                raise
            raise lacking from error
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
