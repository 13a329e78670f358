"""The loader settings that apply on a machine, as data: for `yolo-rocm loader` and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from . import resources
from .transport import HAS_MEMFD
from .worker_count import Recommendation

_NAMES: Final = {
    "gpus": "GPUs",
    "ram_available_gb": "memory available, GB",
    "shm_free_gb": "shared memory free, GB",
    "transport": "batches travel by",
    "workers_reason": "because",
}


def loader_facts(recommendation: Recommendation, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of this machine that loaders depend on, and what follows from them, as plain data for JSON.

    Args:
        recommendation: How many workers, and why.
        settings: The preset's section about loaders.
    """
    ram, shm = resources.ram_available(), resources.shm_free()
    return {
        "system": resources.system_name(),
        "cores": resources.cpu_cores(),
        "gpus": resources.visible_gpus(),
        "ram_available_gb": None if ram is None else ram / 2**30,
        "shm_free_gb": None if shm is None else shm / 2**30,
        "transport": "memfd, /dev/shm does not limit it" if HAS_MEMFD else "torch shared memory",
        "workers": recommendation.workers,
        "workers_reason": recommendation.reason,
        "limits": {limit.name: limit.workers for limit in recommendation.limits},
        "settings": dict(settings),
    }


def rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (name, value) lines for people."""
    lines = {_NAMES.get(name, name): value for name, value in facts.items() if not isinstance(value, dict)}
    lines["worker limits"] = ", ".join(f"{name} {number}" for name, number in facts["limits"].items())
    for key, value in facts["settings"].items():
        lines[f"loader.{key}"] = "not set" if value is None else value
    return [(name, f"{value:.1f}" if isinstance(value, float) else str(value)) for name, value in lines.items()]
