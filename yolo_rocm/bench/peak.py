"""The most memory that steps have needed on a GPU, in three numbers that say different things."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Peak:
    """Most memory in a time, in MiB.

    Attributes:
        allocated_mb: In blocks that are in use, what `torch.cuda.max_memory_allocated` says, and all that device graphs
            hold, which torch counts as free while they are replayed. The allocator does not split a block for a rest of
            1 MiB or less, so that it depends on the blocks that happen to be cached.
        requested_mb: What tensors and workspaces have requested in these blocks; None on a torch that does not count.
        reserved_mb: What the process holds of the card, cached blocks included: GPU_mem in Ultralytics' table.
    """

    allocated_mb: float
    requested_mb: float | None
    reserved_mb: float


def peak_of(device: torch.device) -> Peak:
    """Return the peak since `torch.cuda.reset_peak_memory_stats`."""
    stats = torch.cuda.memory_stats(device)
    requested = stats.get("requested_bytes.all.peak", 0)  # counted since torch 2.0, and not by every allocator
    recorded = held_by_graphs(device)
    return Peak(
        allocated_mb=(stats["allocated_bytes.all.peak"] + recorded) / 2**20,
        requested_mb=(requested + recorded) / 2**20 if requested else None,
        reserved_mb=stats["reserved_bytes.all.peak"] / 2**20,
    )


def held_by_graphs(device: torch.device) -> int:
    """Return the bytes that device graphs hold for what they compute in between, and nobody else may use."""
    number = device.index if device.index is not None else torch.cuda.current_device()
    return sum(
        each["total_size"] - each["allocated_size"]
        for each in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        if each["device"] == number and any(each.get("segment_pool_id", (0, 0)))
    )


def highest(peaks: Sequence[Peak]) -> Peak | None:
    """Return the highest of each number over several turns; None without any."""
    if not peaks:
        return None
    requested = [peak.requested_mb for peak in peaks if peak.requested_mb is not None]
    return Peak(
        max(peak.allocated_mb for peak in peaks),
        max(requested) if requested else None,
        max(peak.reserved_mb for peak in peaks),
    )
