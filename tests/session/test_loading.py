"""What is advised where loaders are too slow."""

from __future__ import annotations

import pytest

from yolo_rocm.data import resources
from yolo_rocm.hardware import system
from yolo_rocm.session.loading import what_to_try

CACHE = "cache=ram (cache=disk where memory is short)"


@pytest.mark.parametrize(
    ("cores", "workers", "cached", "advice"),
    [
        (16, 0, False, f"workers=4, {CACHE}"),
        (16, 6, True, "workers=12"),
        (2, 2, False, CACHE),
        (2, 2, True, "faster storage, or more processor cores"),
    ],
)
def test_what_is_done_already_is_not_advised(monkeypatch, cores, workers, cached, advice):
    for owner, name, value in (
        (system, "cores", cores),
        (resources, "training_processes", 1),
        (resources, "ram_available", 64 * 2**30),
        (resources, "shm_free", None),
        (resources, "system_name", "windows"),
    ):
        monkeypatch.setattr(owner, name, lambda *_, value=value: value)
    assert what_to_try(workers, 16, cached) == advice
