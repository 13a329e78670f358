"""`preset: auto`: the preset for a machine, and the memory of its card."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import PresetError
from ..hardware import Gpu, Machine
from .files import plain, read, shipped_presets, user_presets

PRESET_VARIABLE: Final = "YOLO_ROCM_PRESET"


@dataclass(frozen=True)
class PresetChoice:
    """A preset's name, why it was chosen, and what is worth saying."""

    name: str
    why: str
    notes: tuple[str, ...] = ()


def wanted_by_user() -> str | None:
    """Return what `YOLO_ROCM_PRESET` asks for in place of `auto`."""
    wanted = os.environ.get(PRESET_VARIABLE, "").strip()
    return wanted if wanted and wanted != "auto" else None


def choose(machine: Machine, *, own: bool = True) -> PresetChoice:
    """Pick the preset for a machine: by true gfx target, then by name, then by memory.

    Args:
        machine: Facts to choose by.
        own: Look at the user's own presets first.
    """
    gpu = machine.gpu
    if gpu is None:
        return PresetChoice("cpu", f"preset cpu: {machine.no_gpu_reason}")
    if gpu.vendor == "nvidia":
        return PresetChoice("nvidia", f"preset nvidia: {gpu}, {stack(machine)}")
    notes: list[str] = []
    for presets, whose in ((user_presets() if own else {}, "your own "), (shipped_presets(), "")):
        fitting = sorted(_fitting(presets, gpu, notes))
        if fitting:
            another_name, _, name = fitting[0]
            how = f" is nearest by memory to {name}" if another_name and len(fitting) > 1 else ""
            return PresetChoice(name, f"{whose}preset {name}: {gpu}{how}, {stack(machine)}", tuple(notes))
    return PresetChoice("generic", f"preset generic: no preset of its own for {gpu}, {stack(machine)}", tuple(notes))


def _fitting(presets: Mapping[str, Path], gpu: Gpu, notes: list[str]) -> Iterator[tuple[bool, float, str]]:
    for name, path in presets.items():
        try:
            match = read(path).get("match") or {}
            if gpu.gfx is None or gpu.gfx not in match.get("gfx", []):
                continue
            named = plain(gpu.name) in {plain(each) for each in match.get("names", [])}
            memory = 0.0 if gpu.integrated else abs(float(match.get("vram_gb") or 1e6) - (gpu.vram_gb or 0))
        except (PresetError, AttributeError, TypeError, ValueError) as error:
            notes.append(f"your preset {path} is left out: {error}")
            continue
        # Two cards of one name and different memory (MI50, RX 5500 XT) are told apart by memory where both are shipped.
        yield not named, round(memory), name


def stack(machine: Machine) -> str:
    """Say on what a choice was made besides the card: system, torch, ROCm."""
    system = "+".join(machine.overlays or (machine.system,))
    torch = f"torch {machine.torch}" if machine.torch else "no torch"
    return f"{system}, {torch}{f' with ROCm {machine.hip}' if machine.hip else ''}"


def card_memory(match: Mapping[str, Any], machine: Machine) -> tuple[float | None, bool, str]:
    """Return the memory of the machine's card if the preset is for it, else of the card the preset names, in GiB.

    Returns:
        The memory, None where it is not known; whether it is shared with the system; and both in words.
    """
    gpu = machine.gpu
    targets = match.get("gfx") or []
    if gpu is not None and gpu.memory_gb and (gpu.gfx in targets or not targets):
        shared = gpu.integrated
        return gpu.memory_gb, shared, f"{gpu.memory_gb:.0f} GB{' shared with the system' if shared else ''}"
    size = match.get("vram_gb")
    return size, False, f"{size:g} GB of the card it is for" if size else "memory not known"
