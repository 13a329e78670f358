"""`train.batch: auto`: the batch that a card's memory holds, by what `yolo-rocm bench memory` counts.

The rule rests on a count, not on a run: no AMD card has tried it. `yolo-rocm bench memory yolov8s.yaml` counts on a CPU
what a step of yolov8s in fp32 at 640 px keeps for backward, and what parameters, gradients, momentum and the workspace
of a pass take besides. Half of a card is left to what is not counted: gradients of activations, what the allocator
leaves unused, a second moment and averaged weights, the driver and a desktop. On an NVIDIA H200 a stock process held
1.2 times (fp32) and 1.36 times (AMP) its count (yolov8n, batch 64): 39 and 35 MB an image on top. As much on top of
what `lean` keeps would be 1.5 and 1.9 times.

It is where to begin and no promise: yolov8m fits by the bare count, without the margin, and larger models may not.
Where memory runs out in the first epoch, Ultralytics halves the batch.
"""

from __future__ import annotations

from typing import Any, Final

from ..hardware import Machine
from .schema import Preset
from .select import card_memory
from .step import FULL, LEAN

STOCK: Final = "stock"  # engine `vendor`: nothing of ours keeps less
# yolov8s, fp32, 640 px, in MiB, to within one; tests count them again.
IMAGE_MB: Final = {STOCK: 352.0, FULL: 252.0, LEAN: 120.0}
BESIDES_MB: Final = 129.0  # without the workspace
WORKSPACE_MB: Final = 512  # `conv.memory_mb` of most presets
USED: Final = 0.5  # of a card
_PIXELS: Final = 640
_FEW: Final = 4  # images of 640 px; of fewer, lean keeps many tensors as they are, because they are small
# Ultralytics gathers gradients up to a nominal batch of 64 (`nbs`): up to there a larger batch makes a step faster and
# leaves the optimizer's step what it was.
_MOST: Final = 64


def batch_for(
    memory_gb: float | None,
    *,
    keeps: str = FULL,
    workspace_mb: float = WORKSPACE_MB,
    shared: bool = False,
    imgsz: Any = None,
) -> int | None:
    """Return the batch for a card's memory, a power of two from 1 to 64.

    Args:
        memory_gb: Memory the card may use, GiB; None gives None.
        keeps: What a step keeps for backward: `full`, `lean`, or `stock` where nothing of ours computes it.
        workspace_mb: Workspace a pass may take.
        shared: The memory is the system's, of which half is left to everything else.
        imgsz: Image size of the training, one number or height and width; larger images than 640 px shrink the batch
            with their area.
    """
    if not memory_gb:
        return None
    # Drivers keep some: a card of 24 GB reports 23.98.
    memory_mb = round(memory_gb) * 1024 / (2 if shared else 1)
    area = max(1.0, _longest(imgsz) / _PIXELS) ** 2
    images_mb = memory_mb * USED - BESIDES_MB - workspace_mb
    images = images_mb / (IMAGE_MB[keeps] * area)
    if keeps == LEAN and images * area < _FEW:
        images = images_mb / (IMAGE_MB[FULL] * area)
    return 1 << (max(1, int(min(images, _MOST))).bit_length() - 1)


def _longest(imgsz: Any) -> float:
    """Return the longer side of images: Ultralytics trains with squares of it. 0 where it is no number."""
    sides = imgsz if isinstance(imgsz, list | tuple) else str(imgsz).strip("[]()").split(",")
    try:
        return max(float(side) for side in sides)
    except (TypeError, ValueError):  # Ultralytics says what it takes
        return 0.0


def batch_of(preset: Preset, machine: Machine, imgsz: Any = None) -> tuple[int | None, str]:
    """Return the batch for a preset on a machine, and why.

    Args:
        preset: The preset, its `step.memory` decided.
        machine: Whose card it is; where it is not the preset's, the card that the preset is for counts.
        imgsz: Image size of the training.
    """
    memory, shared, said = card_memory(preset.match.model_dump(), machine)
    keeps = STOCK if preset.conv.engine == "vendor" else preset.step.memory
    # A small workspace is for cards with little room, and no reason to fill it.
    workspace_mb = max(WORKSPACE_MB, preset.conv.memory_mb or 0)
    batch = batch_for(memory, keeps=keeps, workspace_mb=workspace_mb, shared=shared, imgsz=imgsz)
    return batch, said if keeps == FULL else f"{said}, {keeps}"
