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
    for feature, wanted, why in (
        (hooks.DEVICE_AUGMENT, preset.loader.device_augment, no_device_augment()),
        (hooks.REDUCED_DECODE, preset.loader.reduced_decode, hooks.missing(hooks.REDUCED_DECODE)),
        (hooks.FUSED_BLOCKS, True, hooks.missing(hooks.FUSED_BLOCKS)),
        (hooks.LEAN_NETWORKS, preset.step.memory == "lean", hooks.missing(hooks.LEAN_NETWORKS)),
        (hooks.DAMAGED_IMAGES, preset.loader.skip_broken, hooks.missing(hooks.DAMAGED_IMAGES)),
    ):
        if wanted and why:
            yield f"{feature} is left off with this Ultralytics: {why[0]}"


def no_device_augment() -> tuple[str, ...]:
    """Return why the installed Ultralytics cannot leave augmentations to the device; nothing where it can."""
    return (*hooks.missing(hooks.DEVICE_AUGMENT), *hooks.missing(hooks.AUGMENT_STEP))
