"""Peaks of memory on a GPU."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.bench.peak import Peak, forget, highest, since

DEVICE = torch.device("cuda:0")


@pytest.mark.parametrize("requested", [{"requested_bytes.all.peak": 2**20}, {"requested_bytes.all.peak": 0}, {}])
def test_numbers_are_mebibytes_and_what_is_not_counted_is_unknown(monkeypatch, requested):
    stats = {"allocated_bytes.all.peak": 3 * 2**19, "reserved_bytes.all.peak": 2**21, **requested}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: stats if device == DEVICE else {})
    assert since(DEVICE) == Peak(1.5, 1.0 if any(requested.values()) else None, 2.0)


def test_the_highest_of_several_turns_is_taken_number_by_number():
    assert highest([Peak(1.0, 0.5, 9.0), Peak(2.0, 0.25, 8.0), Peak(1.5, None, 7.0)]) == Peak(2.0, 0.5, 9.0)
    assert highest([Peak(1.0, None, 2.0)]) == Peak(1.0, None, 2.0)
    assert highest([]) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_block_that_is_not_split_is_allocated_but_not_requested():
    torch.cuda.empty_cache()
    before = torch.cuda.memory_stats(DEVICE)
    forget(DEVICE)
    tensor = torch.empty(25 * 2**20, dtype=torch.uint8, device=DEVICE)  # torch takes 26 MiB, and leaves 1 unsplit
    peak = since(DEVICE)
    assert tensor.numel() == 25 * 2**20
    assert peak.requested_mb == before["requested_bytes.all.current"] / 2**20 + 25
    assert peak.allocated_mb == before["allocated_bytes.all.current"] / 2**20 + 26
    assert peak.reserved_mb == before["reserved_bytes.all.current"] / 2**20 + 26
    del tensor
    forget(DEVICE)
    assert since(DEVICE).allocated_mb == before["allocated_bytes.all.current"] / 2**20
