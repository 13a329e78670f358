"""Peaks of memory on a GPU."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.bench.peak import Peak, highest, peak_of

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


def test_what_device_graphs_hold_is_counted_as_used(monkeypatch):
    def segment(total, allocated, pool, device=0):
        return {"total_size": total, "allocated_size": allocated, "segment_pool_id": pool, "device": device}

    segments = [segment(8, 2, (0, 0)), segment(2**20, 2**19, (0, 1)), segment(2**21, 0, (0, 1), device=1)]
    stats = {"allocated_bytes.all.peak": 2**20, "requested_bytes.all.peak": 2**19, "reserved_bytes.all.peak": 2**21}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: stats)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    assert peak_of(DEVICE) == Peak(1.5, 1.0, 2.0)
