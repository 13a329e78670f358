"""Memory of a training step counted on a CPU: what a forward pass keeps for backward, and what there is anyway."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from ..norm import kept_bytes, lean, recipes
from ..ultralytics_hooks import train_steps
from .trainee import SEED
from .ways import LEAN_KIND, ways

_MB = 2**20


def count(
    model: str, imgsz: int, amp: bool, kind: str, batch: int | None = None, memory_mb: int | None = None
) -> tuple[float, float]:
    """Return the memory that an image takes, and what is taken whatever the batch is, in MiB.

    An image takes what is kept of it for backward, itself included. The rest is parameters, gradients and momentum, the
    statistics, and for ours the workspace that a pass may take. What a vendor library takes is not known.

    Args:
        model: Weights or model YAML of a detector.
        imgsz: Image size.
        amp: Mixed precision.
        kind: What computes.
        batch: Images of the batch that is meant: of few, lean memory keeps more tensors as they are, because they are
            small. None means so many that none is.
        memory_mb: Workspace a pass of ours may take; the preset's by default.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        module = train_steps.detector(model)
    way = ways(memory_mb=memory_mb, chosen=kind)[0]
    with way.applied("cpu"):
        one, two = (_kept(module, images, imgsz, amp, kind == LEAN_KIND, batch) for images in (1, 2))
    parameters = sum(each.numel() * each.element_size() for each in module.parameters())
    trained = sum(each.numel() * each.element_size() for each in module.parameters() if each.requires_grad)
    buffers = sum(each.numel() * each.element_size() for each in module.buffers())
    workspace = max((patch.planner.budget for patch in way.patches), default=0)
    fixed = max(0, 2 * one - two) + parameters + 2 * trained + buffers + workspace
    return (two - one) / _MB, fixed / _MB


def _kept(module: Any, images: int, imgsz: int, amp: bool, lean_network: bool, meant: int | None) -> int:
    batch = train_steps.made_batch(module, images, imgsz, torch.Generator().manual_seed(SEED))
    without = [*module.parameters(), *module.buffers()]
    with kept_bytes.counted(without) as kept, torch.autocast("cpu", torch.bfloat16, enabled=amp):
        # Tensors that are few values with one image are not in a large batch.
        part, share = batch["img"].numel() // recipes.SMALL_PART, 0.0 if meant is None else images / meant
        bounds = (max(part, int(each * share)) for each in (recipes.SMALLEST, recipes.SMALLEST_DERIVED))
        with lean.on(*bounds) if lean_network else nullcontext():
            predicted = module(batch["img"])
        loss = train_steps.loss_of_predicted(module, batch, predicted)
    total = kept.bytes
    del loss, predicted
    return total
