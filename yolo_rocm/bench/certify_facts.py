"""What a certificate says of card and software, and what is taken out of all its texts."""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Mapping
from typing import Any

from .._version import __version__
from ..diagnosis.redaction import redact, without_paths
from ..engines.triton.available import installed_version
from ..hardware import Gpu, Machine


def card_facts(machine: Machine, kind: str, probed: Mapping[str, Any], overridden: bool) -> dict[str, Any]:
    """Return which card it is, from the machine's files; what these do not know, from torch.

    Args:
        machine: The machine.
        kind: `amd`, `nvidia` or `cpu`.
        probed: What the device has said of itself.
        overridden: An override makes torch report another target than the card's.
    """
    if kind == "cpu":
        return {"kind": kind, "name": f"CPU {platform.machine()}"}
    gpu = machine.gpu or Gpu(kind)
    return {
        "kind": kind,
        "name": gpu.name or probed.get("name"),
        "gfx": gpu.gfx or (None if overridden else probed.get("gfx")) or None,
        "presents_as": gpu.presents_as,
        "memory_gb": gpu.vram_gb or probed.get("memory_gb"),
        "integrated": gpu.integrated,
    }


def stack_facts(machine: Machine, kind: str, probed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the software; of the kernel its numbers, the rest of its name may be anybody's own."""
    windows = machine.gpu.driver if machine.gpu is not None else None
    linux = {"nvidia": machine.nvidia, "amd": machine.amdgpu}.get(kind)
    kernel = re.match(r"\d+(?:\.\d+)*", machine.kernel or "")
    return {
        **{name: getattr(machine, name) for name in ("system", "distribution", "python", "torch", "build")},
        **{name: getattr(machine, name) for name in ("hip", "rocm", "ultralytics")},
        "kernel": kernel.group() if kernel else None,
        "overlays": list(machine.overlays),
        "machine": platform.machine(),
        "driver": windows or linux,
        "cuda": probed.get("cuda"),
        "triton": installed_version() or "none",
        "yolo_rocm": __version__,
    }


def cleaned(value: Any) -> Any:
    """Return plain data for strangers: no names, secrets or paths in its texts, and numbers of six digits.

    Keys are words of this package and stay: somebody's user name may be one of them.
    """
    if isinstance(value, Mapping):
        return {str(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return without_paths(redact(str(value)))
