"""What `bench train` has shown, as rows with their ratios, as a CSV and as a drawing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from ..engines.plan_store import device_name
from ..telemetry.classes import CLASSES
from ..ultralytics_hooks.versions import installed
from . import results
from .faster import faster, preset_way, time_ratio
from .way import Way
from .ways import AUTO_KIND, INTERRUPTED, LEAN_KIND, NOT_RUNNABLE, OFF_KIND, OURS_KIND, STOCK_KIND

# Losses are compared after this many steps: the first one shows the forward pass, the others what backward has made of
# the weights. Further steps blow rounding up (batch statistics, the choice of anchors), and compare chaos.
COMPARED_STEPS: Final = 2
# Found with the ways of torch itself on a CPU, where they depart most: 2 images of 64 pixels, batch statistics over 8
# values. fp32 1.1e-4 (yolo26n), bf16 3.1e-3 (yolov8n); 1e-6 in fp32 with 4 images of 160 pixels. Wrong gradients are
# off by about what the two steps gain, 1e-2.
TOLERANCE: Final = {False: 1e-3, True: 5e-3}  # by amp
# A model may choose other anchors for less: for yolo26n in bf16 on a CPU (4 images of 160 pixels) the two layouts of
# torch itself are 1.1e-2 apart, and ours is 1.3e-2 from one of them. Three times what they show in the same run is
# allowed, up to a bound: a vendor library may be wrong in one of them.
_OWN_TIMES: Final = 3.0
_OWN_MOST: Final = 0.05
_HELD_MB: Final = 16.0  # small tensors that are kept permanently may add up to this


@dataclass(frozen=True)
class TrainRow:
    """One way, next to its peers.

    `to_stock` and `to_vendor_off` are to the faster layout of these, also of memory; those of times are medians of the
    ratios of each round, but for what is compiled.
    """

    way: str  # what computes the step, and the layout
    of_preset: bool  # whether it is what the preset `generic` runs
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
    busy_ms: float | None  # time of a step that the device was busy; None where nothing was profiled
    waited_ms: float | None  # what is left of the median step: the device waited for the host; None on a CPU
    convolution_ms: float | None  # of the busy time, as the others below; see `busy`
    normalisation_ms: float | None
    activation_ms: float | None
    loss_ms: float | None
    optimizer_ms: float | None
    other_ms: float | None
    loss: float | None  # after `COMPARED_STEPS` steps
    departure: float | None  # largest distance of a loss up to there from the reference's, relative to it
    wrong: bool  # whether that is more than rounding can explain
    tuning_s: float | None  # seconds of first steps, compiling and choosing; None where nothing is chosen
    overflows: int  # steps left out by GradScaler
    served: str  # how many layers each engine computes, and what was decided about device graphs
    error: str  # why the way has failed


def rows(ways: Sequence[Way], amp: bool, reference: Way | None = None) -> list[TrainRow]:
    """Return the ways with their ratios, and with their losses compared with those of a reference.

    Args:
        ways: What has run.
        amp: Whether in fp16, where losses differ more.
        reference: One of the ways; by default the first that has run.
    """
    stock, off = faster(ways, STOCK_KIND), faster(ways, OFF_KIND)
    reference = reference or next((way for way in ways if way.step_ms is not None), None)
    chosen = preset_way(ways)
    tolerance = max(TOLERANCE[amp], min(_OWN_TIMES * _between_layouts(ways), _OWN_MOST))
    return [_row(way, way is chosen, (stock, off, reference), tolerance) for way in ways]


def _between_layouts(ways: Sequence[Way]) -> float:
    """Return how far apart the losses of torch's own two layouts are, without vendor library where both have run so."""
    for kind in (OFF_KIND, STOCK_KIND):
        ran = [way for way in ways if way.kind == kind and way.step_ms is not None]
        if len(ran) == 2:
            apart = _departure(ran[1], ran[0])
            return apart if apart == apart else 0.0
    return 0.0


def _row(way: Way, of_preset: bool, peers: tuple[Way | None, Way | None, Way | None], tolerance: float) -> TrainRow:
    stock, off, reference = peers
    ran = way.step_ms is not None
    departure = _departure(way, reference) if ran and reference is not None else None
    mine, to_stock, to_off = _figures(way), _ratios(way, stock), _ratios(way, off)
    return TrainRow(
        way=way.name,
        of_preset=of_preset,
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
        busy_ms=None if way.busy is None else way.busy.total_ms,
        waited_ms=_waited(way),
        **_by_class(way),
        loss=way.losses[COMPARED_STEPS] if ran else None,
        departure=departure,
        wrong=departure is not None and not departure <= tolerance,  # a NaN is wrong
        tuning_s=way.tuning_s,
        overflows=way.overflows,
        served=way.served,
        error=way.error,
    )


def _waited(way: Way) -> float | None:
    if way.busy is None or not way.busy.on_gpu or way.step_ms is None:
        return None
    return max(0.0, way.step_ms - way.busy.total_ms)


def _by_class(way: Way) -> dict[str, float | None]:
    return {f"{kind}_ms": None if way.busy is None else way.busy.by_class[kind] for kind in CLASSES}


def _figures(way: Way) -> dict[str, float | None]:
    """Return time and memory of a way."""
    memory = ("allocated", "requested", "reserved")
    return {"step": way.step_ms, **{name: getattr(way.peak, f"{name}_mb", None) for name in memory}}


def _ratios(way: Way, peer: Way | None) -> dict[str, float | None]:
    """Return the figures of a way in relation to those of another one."""
    others = {} if peer is None else _figures(peer)
    pairs = {name: (mine, others.get(name)) for name, mine in _figures(way).items()}
    found = {name: mine / other if mine is not None and other else None for name, (mine, other) in pairs.items()}
    return {**found, "step": None if peer is None else time_ratio(way, peer)}


def _departure(way: Way, reference: Way) -> float:
    seen = COMPARED_STEPS + 1
    pairs = zip(way.losses[:seen], reference.losses[:seen], strict=True)
    apart = [abs(mine - other) / max(abs(other), 1e-12) for mine, other in pairs]
    return max(apart) if all(value == value for value in apart) else float("nan")


def failures(table: Iterable[TrainRow], held_mb: float = 0.0, interrupted: bool = False) -> list[str]:
    """Return a sentence for each way that is wrong, for each of ours that has failed, and for the comparison itself.

    torch's own ways may fail, as on a card whose vendor library is broken, and so may ours beside it: that is a result.

    Args:
        table: The ways.
        held_mb: What was still allocated on the device when a turn began, in MiB.
        interrupted: Whether the user has ended it early.
    """
    found = []
    if interrupted:
        found.append("interrupted: some ways were not measured, or in fewer turns than others")
    if held_mb > _HELD_MB:
        found.append(f"{held_mb:.0f} MiB were still held when a turn began: peaks are too high by as much")
    for row in table:
        if row.wrong:
            found.append(f"{row.way} is wrong: its loss is {row.loss:.5g}, {row.departure:.1e} away from the reference")
            continue
        beside_vendor = not row.way.startswith(OURS_KIND) or row.way.startswith(AUTO_KIND)
        if row.error and not beside_vendor and not row.error.startswith((NOT_RUNNABLE, INTERRUPTED)):
            found.append(f"{row.way} has failed: {row.error}")
    return found


def summary(ways: Sequence[Way]) -> str:
    """Say what the preset runs, how it compares with its peers, and lean with it."""
    chosen = preset_way(ways)
    ours, lean = chosen or faster(ways, OURS_KIND), faster(ways, LEAN_KIND)
    if ours is None:
        return "ours has not run" if any(way.kind == OURS_KIND for way in ways) else ""
    parts = [f"{ours.name}{', as the preset runs it' if chosen else ''}: {ours.step_ms:.1f} ms a step"]
    for way, peer in ((ours, faster(ways, STOCK_KIND)), (ours, faster(ways, OFF_KIND)), (lean, ours)):
        if way is not None and peer is not None:
            ratios = _ratios(way, peer)
            memory = "" if ratios["allocated"] is None else f" and {ratios['allocated']:.3f}x the peak memory"
            name = f"{way.name}: " if way is lean else ""
            parts.append(f"{name}{ratios['step']:.3f}x the time{memory} of {peer.name}")
    return "; ".join(parts)


def stamped(table: Iterable[TrainRow], device: str, command: str) -> list[dict[str, Any]]:
    """Return the rows as plain data, each with what it was measured on."""
    versions = {"torch": str(torch.__version__), "ultralytics": installed()}
    stamp = results.stamp(command, device=device_name(device), **versions)
    return [{**asdict(row), **stamp} for row in table]


def plot(path: Path, table: Iterable[TrainRow], title: str) -> None:
    """Draw time, and memory where it is known, as one bar for each way."""
    ran = [row for row in table if row.step_ms is not None]
    panels = [results.Panel("milliseconds a step", 1, {"step": [row.step_ms or 0.0 for row in ran]})]
    if any(row.peak_mb for row in ran):
        panels.append(results.Panel("peak memory, MB", 0, {"peak": [row.peak_mb or 0.0 for row in ran]}))
    results.draw(path, title, [_marked(row) for row in ran], panels)


def _marked(row: TrainRow) -> str:
    return f"{row.way}{' (preset)' if row.of_preset else ''}{' (wrong)' if row.wrong else ''}"
