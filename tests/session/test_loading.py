"""What loaders of a session are told, and what is advised where they are too slow."""

from __future__ import annotations

import pytest

from yolo_rocm.preset.resolve import resolve
from yolo_rocm.session import loading
from yolo_rocm.session.loading import what_to_try


@pytest.mark.parametrize("system", ["linux", "windows"])
@pytest.mark.parametrize(
    ("cores", "workers", "cached", "loader", "advice"),
    [
        (16, 0, False, {}, "workers=4, cache=disk, rocm.loader.device_augment=true"),
        (16, 6, True, {}, "workers=12, rocm.loader.device_augment=true"),
        (2, 0, False, {}, "workers=2, cache=disk, rocm.loader.device_augment=true"),
        (2, 2, False, {"device_augment": True}, "cache=disk"),
        (2, 2, True, {"device_augment": True}, "faster storage, or more processor cores"),
    ],
)
def test_what_is_done_already_is_not_advised(monkeypatch, system, cores, workers, cached, loader, advice):
    from yolo_rocm.data import worker_count

    original = worker_count.recommended_workers
    machine = {"system": system, "cores": cores, "gpus": 1, "ram_gb": 64.0}
    monkeypatch.setattr(worker_count, "recommended_workers", lambda **given: original(**machine, **given))
    monkeypatch.setattr(loading, "no_device_augment", lambda: "")
    assert what_to_try(resolve("cpu", {"loader": loader}), workers, 16, cached) == advice


def test_what_cannot_be_had_is_not_advised(monkeypatch):
    monkeypatch.setattr(loading, "no_device_augment", lambda: "this Ultralytics has none")
    assert "device_augment" not in what_to_try(resolve("cpu"), 0, 16, False)
