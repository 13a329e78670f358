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
class Trial:
    """What a try with some batch has shown: the peak of memory in MiB, None where it did not fit; or an error."""

    peak_mb: float | None
    error: str = ""


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


def largest(fits: Callable[[int], Trial], cap_mb: float, most: int = MOST) -> tuple[int | None, dict[int, Trial]]:
    """Return the largest batch that fits, and every try.

    Memory grows with the batch along a line, so that the line through the smallest and the largest batch that fit says
    where to try next. Near the end the allocator makes do with what there is, and more fits than the line says: it is
    found by growing steps and by bisection.

    Args:
        fits: Tries a batch.
        cap_mb: Memory there is, MiB.
        most: Largest batch to look for.
    """
    tries: dict[int, Trial] = {}
    below, above, step = 0, most + 1, 1
    batch = min(2, most)
    while above - below > 1:
        trial = tries[batch] = fits(batch)
        if trial.error:
            return None, tries
        if trial.peak_mb is None:
            above = batch
        else:
            below = batch
        guess = _guess(tries, cap_mb, below, above)
        if above > most and len(tries) > 2:  # what the line has said fits
            guess, step = max(guess, below + step), 2 * step
        elif not below < guess < above:  # one that is known already is no guess
            guess = (below + above) // 2
        batch = min(max(guess, below + 1), above - 1)
    return below, tries


def _guess(tries: dict[int, Trial], cap_mb: float, below: int, above: int) -> int:
    known = _fitting(tries)
    if len(known) < 2:
        return 2 * below if below else above // 2
    image, fixed = line_through(known[0], known[-1])
    if image <= 0:
        return (below + above) // 2
    return int((cap_mb - fixed) / image)


def _fitting(tries: dict[int, Trial]) -> list[tuple[int, float]]:
    return sorted((batch, trial.peak_mb) for batch, trial in tries.items() if trial.peak_mb is not None)


def line_through(one: tuple[int, float], other: tuple[int, float]) -> tuple[float, float]:
    """Return the memory of one image, and the rest, of two batches and their peaks."""
    image = (other[1] - one[1]) / (other[0] - one[0])
    return image, one[1] - image * one[0]


def try_on_gpu(given: dict[str, Any], kind: str, batch: int) -> Trial:
    """Take some steps with a batch in a process of its own.

    Args:
        given: `model`, `imgsz`, `amp`, `vram_gb`, and `memory_mb` where ours may take another workspace.
        kind: What computes.
        batch: The batch.
    """
    result = run_module("yolo_rocm.bench.memory_child", {**given, "kind": kind, "batch": batch}, _TIMEOUT_S)
    return Trial(**result.answer) if result.answer else Trial(None, result.error)


def rows(
    given: dict[str, Any],
    device: str,
    progress: Callable[[int, int], None],
    try_one: Callable[..., Trial] = try_on_gpu,
) -> list[Holds]:
    """Return what a card can hold each way.

    Args:
        given: `model`, `imgsz`, `amp`, `vram_gb`, and `memory_mb` where ours may take another workspace.
        device: Where: on a GPU it is measured, on a CPU counted.
        progress: Called with (ways done, all ways).
        try_one: Tries a batch on a GPU.

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
            found.append(_measured(given, kind, try_one))
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


def _measured(given: dict[str, Any], kind: str, try_one: Callable[..., Trial]) -> Holds:
    batch, tries = largest(lambda batch: try_one(given, kind, batch), given["vram_gb"] * 1024)
    fitting = _fitting(tries)
    image, fixed = line_through(fitting[0], fitting[-1]) if len(fitting) > 1 else (None, None)
    error = next((trial.error for trial in tries.values() if trial.error), "")
    return Holds(kind, batch, None, image, fixed, MEASURED, tries=" ".join(map(str, tries)), error=error)


def _counted(given: dict[str, Any], kind: str) -> Holds:
    from .memory_count import count

    batch: int | None = None
    while True:
        sizes = given["model"], given["imgsz"], given["amp"]
        image, fixed = count(*sizes, kind, batch, given.get("memory_mb"))
        holds = min(max(0, int((given["vram_gb"] * 1024 - fixed) / image)), MOST)
        if kind != LEAN_KIND or not holds or (batch is not None and holds >= batch):
            return Holds(kind, holds if batch is None else min(holds, batch), None, image, fixed, COUNTED)
        batch = holds  # of which lean memory may keep more than was counted: once more, for as many
