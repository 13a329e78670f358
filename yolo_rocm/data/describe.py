"""The loader settings that apply on a machine, as data: for `yolo-rocm loader` and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..hardware import detect
from . import resources
from .transport import HAS_MEMFD
from .worker_count import Recommendation


def loader_facts(recommendation: Recommendation, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of this machine that loaders depend on, and what follows from them, as plain data for JSON.

    Args:
        recommendation: How many workers, and why.
        settings: The preset's section about loaders.
    """
    machine, shm = detect(), resources.shm_free()
    return {
        "system": machine.system,
        "cores": machine.cores,
        "gpus": sum(not gpu.hidden_by for gpu in machine.gpus),
        "ram_available_gb": machine.ram_available_gb,
        "shm_free_gb": None if shm is None else shm / 2**30,
        "transport": "memfd, /dev/shm does not limit it" if HAS_MEMFD else "torch shared memory",
        "workers": recommendation.workers,
        "workers_reason": recommendation.reason,
        "limits": {limit.name: limit.workers for limit in recommendation.limits},
        "settings": dict(settings),
    }


def rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (name, value) lines for people."""
    lines = {name.replace("_", " "): value for name, value in facts.items() if not isinstance(value, dict)}
    lines["worker limits"] = ", ".join(f"{name} {number}" for name, number in facts["limits"].items())
    for key, value in facts["settings"].items():
        lines[f"loader.{key}"] = "not set" if value is None else value
    return [(name, f"{value:.1f}" if isinstance(value, float) else str(value)) for name, value in lines.items()]
