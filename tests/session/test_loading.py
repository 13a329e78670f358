"""What is advised where loaders are too slow."""

from __future__ import annotations

import pytest

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
    from yolo_rocm.data import worker_count

    original = worker_count.recommended_workers
    machine = {"system": "windows", "cores": cores, "gpus": 1, "ram_gb": 64.0}
    monkeypatch.setattr(worker_count, "recommended_workers", lambda **given: original(**machine, **given))
    assert what_to_try(workers, 16, cached) == advice
