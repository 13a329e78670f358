"""What a session says when it becomes active for the first time: card, preset, engine, and what is left off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..engines.names import VENDOR
from ..hardware import Machine
from ..preset.schema import Settings
from ..ultralytics_hooks import probes


def opening_lines(settings: Settings, machine: Machine, device: Any = None) -> Iterator[str]:
    """Return the lines for the user; `rocm.json` has the rest.

    Args:
        settings: The preset.
        machine: What it runs on.
        device: Ultralytics' `device` argument.
    """
    import torch

    preset, conv = settings.preset, settings.preset.conv
    engine = "" if conv.engine == VENDOR else f", engine {conv.engine}"
    if machine.gpu is None or str(device).lower() == "cpu":
        lack = "" if machine.gpu is not None else "torch can use no GPU, " if machine.gpus else "no GPU found, "
        yield f"{lack}using the CPU (preset {preset.name}{engine})"
    else:
        yield f"{machine.gpu}: preset {preset.name}{engine}"
    yield from settings.notes
    if "cuda" in conv.devices and not torch.cuda.is_available():
        yield f"preset {preset.name} is for a GPU and torch finds none: its GPU settings are ignored"
    for feature, asked in (
        (probes.FUSED_BLOCKS, True),
        (probes.LEAN_NETWORKS, preset.step.memory == "lean"),
        (probes.DAMAGED_IMAGES, preset.loader.skip_broken),
    ):
        if asked and (why := probes.missing(feature)):
            yield f"{feature} is left off with this Ultralytics: {why[0]}"
