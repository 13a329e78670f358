"""What a certificate says of card and software, and what is taken out of all its texts."""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Mapping
from typing import Any

from .._version import __version__
from ..diagnosis.context import Context
from ..diagnosis.redaction import redact, without_paths
from ..engines.triton.available import installed_version
from ..hardware import OVERRIDE, Gpu, Machine, overridden_gfx
from ..preset.files import plain


def card_facts(machine: Machine, kind: str, probed: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return which card it is, from the machine's files; what these do not know, from torch.

    Args:
        machine: The machine.
        kind: `amd`, `nvidia` or `cpu`.
        probed: What the device has said of itself.
        environ: Variables of the processes that ran on it, an override among them.
    """
    if kind == "cpu":
        return {"kind": kind, "name": f"CPU {platform.machine()}"}
    gpu = machine.gpu or Gpu(kind)
    if is_another_card(machine, probed, environ):
        others = [each for each in machine.visible if each is not gpu]
        named = [each for each in others if _same_name(each.name, probed.get("name"))]
        alike = [each for each in others if each.gfx and each.gfx == probed.get("gfx")]
        gpu = next(iter((*named, *alike)), Gpu(kind))
    target = presented_target(machine, gpu, probed, environ)
    gfx = gpu.gfx or (None if target else probed.get("gfx")) or None
    return {
        "kind": kind,
        "name": gpu.name or probed.get("name"),
        "gfx": gfx,
        "presents_as": None if target == gfx else target,
        "memory_gb": gpu.vram_gb or probed.get("memory_gb"),
        "integrated": gpu.integrated,
    }


def presented_target(machine: Machine, gpu: Gpu, probed: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """Return the target that an override makes torch report for a GPU; None without one.

    Args:
        machine: The machine.
        gpu: The GPU; where its node is not known, any node's override may be its.
        probed: What the device has said of itself.
        environ: Variables of the process that uses it.
    """
    if gpu.node is not None or machine.system != "linux":
        return overridden_gfx(Context(machine, environ=environ).override(gpu))
    values = (value for name, value in environ.items() if re.fullmatch(rf"{OVERRIDE}(_\d+)?", name))
    targets = [target for target in map(overridden_gfx, values) if target]
    found = probed.get("gfx")
    return found if found in targets else None if found else next(iter(targets), None)


def is_another_card(machine: Machine, probed: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Return whether torch's first GPU is not the one to train on, by its target or by its name."""
    gpu, found, name = machine.gpu, probed.get("gfx"), probed.get("name")
    if gpu is None:
        return False
    wanted = presented_target(machine, gpu, probed, environ) or gpu.gfx
    if found and wanted and found != wanted:
        return True
    others = [each for each in machine.visible if each is not gpu]
    return not _same_name(gpu.name, name) and any(_same_name(each.name, name) for each in others)


def _same_name(one: str | None, other: str | None) -> bool:
    first, second = (plain(name).removeprefix("nvidia") for name in (one, other))
    return bool(first) and first == second


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
