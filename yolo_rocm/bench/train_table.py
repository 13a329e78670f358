"""What `bench train` has shown, as rows with their ratios, as a CSV and as a drawing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from .. import ultralytics_hooks as hooks
from ..engines.plan_store import device_name
from . import results
from .train import OFF_KIND, OURS_KIND, STOCK_KIND, Way

# Losses are compared after this many steps: the first one shows the forward pass, the others what backward has made of
# the weights. Further steps blow rounding up (batch statistics, the choice of anchors), and compare chaos.
COMPARED_STEPS: Final = 2
# Found with the ways of torch itself on a CPU, where they depart most: 2 images of 64 pixels, batch statistics over 8
# values. fp32 1.1e-4 (yolo26n), bf16 3.1e-3 (yolov8n); 1e-6 in fp32 with 4 images of 160 pixels. Wrong gradients are
# off by about what the two steps gain, 1e-2.
TOLERANCE: Final = {False: 1e-3, True: 5e-3}  # by amp
_HELD_MB: Final = 16.0  # small tensors that are kept permanently may add up to this


@dataclass(frozen=True)
class TrainRow:
    """One way, next to its peers. `to_stock` and `to_vendor_off` divide by the faster layout of these, also memory."""

    way: str  # what computes the convolutions, and the layout
    step_ms: float | None  # median time of a step; None where the way has failed
    fastest_ms: float | None  # of all timed steps
    slowest_ms: float | None
    to_stock: float | None
    to_vendor_off: float | None
    peak_mb: float | None  # most memory allocated in a timed step; None on a CPU; see `Peak` for this and the others
    memory_to_stock: float | None
    memory_to_vendor_off: float | None
    requested_mb: float | None
    requested_to_stock: float | None
    reserved_mb: float | None
    reserved_to_stock: float | None
    loss: float | None  # after `COMPARED_STEPS` steps
    departure: float | None  # largest distance of a loss up to there from the reference's, relative to it
    wrong: bool  # whether that is more than rounding can explain
    tuning_s: float | None  # seconds of a first step, compiling and choosing; None where nothing is chosen
    overflows: int  # steps left out by GradScaler
    served: str  # how many convolution layers each engine computes
    error: str  # why the way has failed


def faster(ways: Iterable[Way], kind: str) -> Way | None:
    """Return the faster layout of a kind; None where none has run."""
    return min(
        (w for w in ways if w.kind == kind and w.step_ms is not None), key=lambda w: w.step_ms or 0, default=None
    )


def rows(ways: Sequence[Way], amp: bool, reference: Way | None = None) -> list[TrainRow]:
    """Return the ways with their ratios, and with their losses compared with those of a reference.

    Args:
        ways: What has run.
        amp: Whether in fp16, where losses differ more.
        reference: One of the ways; by default the first that has run.
    """
    stock, off = faster(ways, STOCK_KIND), faster(ways, OFF_KIND)
    reference = reference or next((way for way in ways if way.step_ms is not None), None)
    return [_row(way, stock, off, reference, TOLERANCE[amp]) for way in ways]


def _row(way: Way, stock: Way | None, off: Way | None, reference: Way | None, tolerance: float) -> TrainRow:
    ran = way.step_ms is not None
    departure = _departure(way, reference) if ran and reference is not None else None
    mine, to_stock, to_off = _figures(way), _ratios(way, stock), _ratios(way, off)
    return TrainRow(
        way=way.name,
        step_ms=mine["step"],
        fastest_ms=min(way.times_ms) if ran else None,
        slowest_ms=max(way.times_ms) if ran else None,
        to_stock=to_stock["step"],
        to_vendor_off=to_off["step"],
        peak_mb=mine["allocated"],
        memory_to_stock=to_stock["allocated"],
        memory_to_vendor_off=to_off["allocated"],
        requested_mb=mine["requested"],
        requested_to_stock=to_stock["requested"],
        reserved_mb=mine["reserved"],
        reserved_to_stock=to_stock["reserved"],
        loss=way.losses[COMPARED_STEPS] if ran else None,
        departure=departure,
        wrong=departure is not None and not departure <= tolerance,  # a NaN is wrong
        tuning_s=way.tuning_s,
        overflows=way.overflows,
        served=way.served,
        error=way.error,
    )


def _figures(way: Way) -> dict[str, float | None]:
    """Return time and memory of a way."""
    memory = ("allocated", "requested", "reserved")
    return {"step": way.step_ms, **{name: getattr(way.peak, f"{name}_mb", None) for name in memory}}


def _ratios(way: Way, peer: Way | None) -> dict[str, float | None]:
    """Return the figures of a way divided by those of another one."""
    others = {} if peer is None else _figures(peer)
    pairs = {name: (mine, others.get(name)) for name, mine in _figures(way).items()}
    return {name: mine / other if mine is not None and other else None for name, (mine, other) in pairs.items()}


def _departure(way: Way, reference: Way) -> float:
    pairs = list(zip(way.losses, reference.losses, strict=True))[: COMPARED_STEPS + 1]
    apart = [abs(mine - other) / max(abs(other), 1e-12) for mine, other in pairs]
    return max(apart) if all(value == value for value in apart) else float("nan")


def failures(table: Iterable[TrainRow], held_mb: float = 0.0) -> list[str]:
    """Return a sentence for each way that is wrong, for each of ours that has failed, and for memory still held.

    torch's own ways may fail, as on a card whose vendor library is broken: that is a result.

    Args:
        table: The ways.
        held_mb: What was still allocated on the device when a turn began, in MiB.
    """
    found = []
    if held_mb > _HELD_MB:
        found.append(f"{held_mb:.0f} MiB were still held when a turn began: peaks are too high by as much")
    for row in table:
        if row.wrong:
            found.append(f"{row.way} is wrong: its loss is {row.loss:.5g}, {row.departure:.1e} away from the reference")
        elif row.error and row.way.startswith(OURS_KIND):
            found.append(f"{row.way} has failed: {row.error}")
    return found


def summary(ways: Sequence[Way], table: Sequence[TrainRow]) -> str:
    """Say in one line how the faster layout of ours compares with its peers."""
    ours = faster(ways, OURS_KIND)
    if ours is None or ours.step_ms is None:
        return "ours has not run"
    row = next(row for row in table if row.way == ours.name)
    parts = []
    for peer, time_ratio, memory_ratio in (
        (faster(ways, STOCK_KIND), row.to_stock, row.memory_to_stock),
        (faster(ways, OFF_KIND), row.to_vendor_off, row.memory_to_vendor_off),
    ):
        if peer is not None and time_ratio is not None:
            memory = "" if memory_ratio is None else f" and {memory_ratio:.3f}x the peak memory"
            parts.append(f"{time_ratio:.3f}x the time{memory} of {peer.name}")
    return f"{ours.name}, the faster of ours, {ours.step_ms:.1f} ms a step: " + (", ".join(parts) or "no peer has run")


def stamped(table: Iterable[TrainRow], device: str, command: str) -> list[dict[str, Any]]:
    """Return the rows as plain data, each with what it was measured on."""
    versions = {"torch": str(torch.__version__), "ultralytics": hooks.installed_version()}
    stamp = results.stamp(command, device=device_name(device), **versions)
    return [{**asdict(row), **stamp} for row in table]


def plot(path: Path, table: Iterable[TrainRow], title: str) -> None:
    """Draw time, and memory where it is known, as one bar for each way."""
    ran = [row for row in table if row.step_ms is not None]
    panels = [results.Panel("milliseconds a step", 1, {"step": [row.step_ms or 0.0 for row in ran]})]
    if any(row.peak_mb for row in ran):
        panels.append(results.Panel("peak memory, MB", 0, {"peak": [row.peak_mb or 0.0 for row in ran]}))
    results.draw(path, title, [f"{row.way} (wrong)" if row.wrong else row.way for row in ran], panels)
