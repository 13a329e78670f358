"""The section `step` of a preset with its `auto` decided: memory that a step keeps, its layout, its device graphs."""

from __future__ import annotations

from typing import Final

from ..hardware import Machine
from ..utils.switch import Switch
from .schema import Preset
from .select import card_memory

FULL, LEAN = "full", "lean"
NCHW, CHANNELS_LAST, AUTO = "nchw", "channels_last", "auto"
# Below this the batch is small for want of memory: computing activations again costs less than another step.
LEAN_BELOW_GB: Final = 12


def memory_for(memory_gb: float | None, *, shared: bool = False) -> str:
    """Return what `step.memory: auto` is with a card's memory: lean below 12 GB, full where it is not known.

    Args:
        memory_gb: Memory the card may use, GiB.
        shared: The memory is the system's, of which half is left to everything else.
    """
    if not memory_gb:
        return FULL
    # Drivers keep some: a card of 12 GB reports 11.98.
    return LEAN if round(memory_gb) / (2 if shared else 1) < LEAN_BELOW_GB else FULL


def memory_of(preset: Preset, machine: Machine) -> tuple[str, str]:
    """Return what `step.memory: auto` of a preset is on a machine, `full` or `lean`, and why."""
    if preset.conv.engine == "vendor":
        return FULL, "engine vendor"
    memory, shared, said = card_memory(preset.match.model_dump(), machine)
    return memory_for(memory, shared=shared), said


def layout_of(preset: Preset) -> str | None:
    """Return the layout a preset asks for: `nchw`, `channels_last`, `auto`, or None where it is left to Ultralytics.

    Ultralytics' own argument in the section `train` wins over `step.layout`.
    """
    given = preset.train.get("channels_last")
    if given is not None:
        return CHANNELS_LAST if given else NCHW
    if preset.step.layout != AUTO:
        return preset.step.layout
    return None if preset.conv.engine == "vendor" else AUTO


def graph_of(preset: Preset) -> Switch:
    """Return whether a preset records steps as device graphs."""
    vendor = preset.conv.engine == "vendor"  # what its library does while it is recorded is not ours to try
    return Switch.OFF if vendor and preset.step.graph == Switch.AUTO else preset.step.graph
