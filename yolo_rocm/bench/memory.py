"""`yolo-rocm bench memory`: the largest batch that a card of a given memory can train with: stock, ours and ours lean.

On a GPU it is measured: torch's allocator is capped, and each try is some whole steps, optimizer included, in a process
of its own, as what ran out of memory once leaves memory in pieces. On a CPU it is counted from the bytes that a forward
pass keeps for backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from ..errors import ConfigError
from ..ultralytics_hooks import train_steps
from ..utils.child_process import run_module
from .checks import LEAST_OF_A_STEP, check, loaded
from .ways import LEAN_KIND, OURS_KIND, STOCK_KIND

KINDS: Final = (STOCK_KIND, OURS_KIND, LEAN_KIND)
MOST: Final = 1024  # no larger batch is looked for
MEASURED, COUNTED = "measured", "counted"
_TIMEOUT_S: Final = 600
_REPORTED_LESS: Final = 1.1  # a card that is sold with 24 GB reports 23.98, or 22.5 where errors are corrected
_USUAL_GB: Final = 6


@dataclass(frozen=True)
class Holds:
    """What a card can hold one way.

    Attributes:
        way: What computes.
        batch: The largest batch; 0 where not even one image fits, None where it could not be found out.
        to_stock: It, divided by that of stock; None where one of them may be larger.
        image_mb: Memory that one image more takes, MiB.
        fixed_mb: Memory that is taken whatever the batch is, MiB.
        how: `measured` or `counted`.
        at_limit: Whether no larger batch was looked for: what a card can hold is this or more.
        tries: Batches that were tried.
        error: Why nothing was found out.
    """

    way: str
    batch: int | None
    to_stock: float | None
    image_mb: float | None
    fixed_mb: float | None
    how: str
    at_limit: bool = False
    tries: str = ""
    error: str = ""


def largest(peak_of: Callable[[int], float | None], most: int = MOST) -> tuple[int, dict[int, float | None]]:
    """Return the largest batch that fits, and the peak of each that was tried: twice as many, then in between.

    Args:
        peak_of: Tries a batch, and returns its peak in MiB, or None where it does not fit.
        most: Largest batch to look for.
    """
    peaks: dict[int, float | None] = {}
    below, above = 0, most + 1
    batch = 2
    while above - below > 1:
        peaks[batch] = peak_of(batch)
        if peaks[batch] is None:
            above = batch
        else:
            below = batch
        batch = min(2 * batch, most) if above > most else (below + above) // 2
    return below, peaks


def peak_on_gpu(given: dict[str, Any], kind: str, batch: int) -> float | None:
    """Take some steps with a batch in a process of its own, and return their peak; None where it does not fit.

    Args:
        given: `model`, `imgsz`, `amp`, `vram_gb`, and `memory_mb` where ours may take another workspace.
        kind: What computes.
        batch: The batch.

    Raises:
        RuntimeError: Neither could be found out.
    """
    result = run_module("yolo_rocm.bench.memory_child", {**given, "kind": kind, "batch": batch}, _TIMEOUT_S)
    if result.error:
        raise RuntimeError(result.error)
    peak: float | None = result.answer["peak_mb"]
    return peak


def rows(
    given: dict[str, Any],
    device: str,
    progress: Callable[[int, int], None],
    peak_of: Callable[..., float | None] = peak_on_gpu,
) -> list[Holds]:
    """Return what a card can hold each way.

    Args:
        given: `model`, `imgsz`, `amp`, `vram_gb`, and `memory_mb` where ours may take another workspace.
        device: Where: on a GPU it is measured, on a CPU counted.
        progress: Called with (ways done, all ways).
        peak_of: Tries a batch on a GPU.

    Raises:
        ConfigError: A value means nothing, or the model is no detector.
    """
    check(given, optional=("memory_mb",), imgsz=LEAST_OF_A_STEP)
    loaded(train_steps.detector, given["model"], given["imgsz"])
    if device.startswith("cuda"):
        given = {**given, "vram_gb": _on_card(given["vram_gb"], device)}
    found: list[Holds] = []
    for kind in KINDS:
        progress(len(found), len(KINDS))
        if device.startswith("cuda"):
            found.append(_measured(given, kind, peak_of))
        else:
            found.append(_counted(given, kind))
    progress(len(found), len(KINDS))
    found = [replace(each, at_limit=each.batch == MOST) for each in found]
    return [replace(each, to_stock=_ratio(each, found[0])) for each in found]


def _ratio(one: Holds, stock: Holds) -> float | None:
    if one.batch is None or not stock.batch or one.at_limit or stock.at_limit:
        return None
    return one.batch / stock.batch


def usual_gb(device: str) -> float:
    """Return the memory to look at where none is asked for: 6 GB, or less on a GPU that has less."""
    return min(_USUAL_GB, math.floor(_card_gb(device) * _REPORTED_LESS)) if device.startswith("cuda") else _USUAL_GB


def _card_gb(device: str) -> float:
    return torch.cuda.get_device_properties(device).total_memory / 2**30


def _on_card(vram_gb: float, device: str) -> float:
    """Return the memory to measure, which is all there is at most.

    Raises:
        ConfigError: It is far more.
    """
    card_gb = _card_gb(device)
    if vram_gb > card_gb * _REPORTED_LESS:
        raise ConfigError(
            f"vram_gb={vram_gb:g} cannot be measured on {device}, which has {card_gb:.1f} GB: give at most that. It is "
            "counted, not measured, where torch sees no GPU (HIP_VISIBLE_DEVICES=-1, or CUDA_VISIBLE_DEVICES=-1)."
        )
    return min(vram_gb, card_gb)


def _measured(given: dict[str, Any], kind: str, peak_of: Callable[..., float | None]) -> Holds:
    try:
        batch, peaks = largest(lambda batch: peak_of(given, kind, batch))
    except RuntimeError as error:
        return Holds(kind, None, None, None, None, MEASURED, error=str(error))
    fitting = sorted((batch, peak) for batch, peak in peaks.items() if peak is not None)
    image = fixed = None
    if len(fitting) > 1:
        (few, low), (many, high) = fitting[0], fitting[-1]
        image = (high - low) / (many - few)
        fixed = low - image * few
    return Holds(kind, batch, None, image, fixed, MEASURED, tries=" ".join(map(str, peaks)))


def _counted(given: dict[str, Any], kind: str) -> Holds:
    from .memory_count import count

    batch, meant = MOST, None
    while True:
        image, fixed = count(given["model"], given["imgsz"], given["amp"], kind, meant, given.get("memory_mb"))
        batch = min(max(0, int((given["vram_gb"] * 1024 - fixed) / image)), batch)
        if kind != LEAN_KIND or batch in (0, meant):
            return Holds(kind, batch, None, image, fixed, COUNTED)
        meant = batch  # of so few lean memory may keep more than was counted: once more, for as many
