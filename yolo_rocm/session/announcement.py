"""What a session says when it becomes active for the first time: preset, engine, and what is left off."""

from __future__ import annotations

from collections.abc import Iterator

from .. import ultralytics_hooks as hooks
from ..preset.schema import Settings


def opening_lines(settings: Settings) -> Iterator[str]:
    """Return the lines for the user."""
    import torch

    preset, conv = settings.preset, settings.preset.conv
    yield (
        f"{settings.why}; conv {conv.engine} on {'+'.join(conv.devices)}, vendor library {conv.vendor}, "
        f"evidence: {preset.evidence} (YOLO_ROCM=0 turns this off)"
    )
    yield from settings.notes
    if "cuda" in conv.devices and not torch.cuda.is_available():
        yield f"preset {preset.name} is for a GPU and torch finds none: its GPU settings are ignored"
    for feature, asked in (
        (hooks.REDUCED_DECODE, preset.loader.reduced_decode),
        (hooks.FUSED_BLOCKS, True),
        (hooks.LEAN_NETWORKS, preset.step.memory == "lean"),
        (hooks.DAMAGED_IMAGES, preset.loader.skip_broken),
    ):
        if asked and (why := hooks.missing(feature)):
            yield f"{feature} is left off with this Ultralytics: {why[0]}"
