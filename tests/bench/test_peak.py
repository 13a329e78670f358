"""Peaks of memory on a GPU."""

from __future__ import annotations

import gc

import pytest
import torch

from yolo_rocm.bench.peak import Peak, held_by_graphs, highest, peak_of

DEVICE = torch.device("cuda:0")


@pytest.mark.parametrize("requested", [{"requested_bytes.all.peak": 2**20}, {"requested_bytes.all.peak": 0}, {}])
def test_numbers_are_mebibytes_and_what_is_not_counted_is_unknown(monkeypatch, requested):
    stats = {"allocated_bytes.all.peak": 3 * 2**19, "reserved_bytes.all.peak": 2**21, **requested}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: stats if device == DEVICE else {})
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: [])
    assert peak_of(DEVICE) == Peak(1.5, 1.0 if any(requested.values()) else None, 2.0)


def test_the_highest_of_several_turns_is_taken_number_by_number():
    assert highest([Peak(1.0, 0.5, 9.0), Peak(2.0, 0.25, 8.0), Peak(1.5, None, 7.0)]) == Peak(2.0, 0.5, 9.0)
    assert highest([Peak(1.0, None, 2.0)]) == Peak(1.0, None, 2.0)
    assert highest([]) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_tensor_is_in_the_peak_until_it_is_reset():
    gc.collect()  # what earlier tests have left would otherwise be freed in between
    torch.empty(1, device=DEVICE)  # before the first tensor of a process torch counts nothing
    before = torch.cuda.memory_stats(DEVICE)
    recorded = held_by_graphs(DEVICE)
    held = {which: (before[f"{which}_bytes.all.current"] + recorded) / 2**20 for which in ("requested", "allocated")}
    torch.cuda.reset_peak_memory_stats(DEVICE)
    tensor = torch.empty(25 * 2**20, dtype=torch.uint8, device=DEVICE)
    del tensor
    peak = peak_of(DEVICE)
    assert peak.requested_mb == held["requested"] + 25
    assert held["allocated"] + 25 <= peak.allocated_mb <= held["allocated"] + 26  # a block may be left unsplit
    assert peak.reserved_mb >= peak.allocated_mb
    torch.cuda.reset_peak_memory_stats(DEVICE)
    assert peak_of(DEVICE).requested_mb == (held["requested"] if before["requested_bytes.all.current"] else None)


def test_what_device_graphs_hold_is_counted_as_used(monkeypatch):
    def segment(total, allocated, pool, device=0):
        return {"total_size": total, "allocated_size": allocated, "segment_pool_id": pool, "device": device}

    segments = [segment(8, 2, (0, 0)), segment(2**20, 2**19, (0, 1)), segment(2**21, 0, (0, 1), device=1)]
    stats = {"allocated_bytes.all.peak": 2**20, "requested_bytes.all.peak": 2**19, "reserved_bytes.all.peak": 2**21}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: stats)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    assert peak_of(DEVICE) == Peak(1.5, 1.0, 2.0)
