"""The number of workers for machines that are named or made up."""

from __future__ import annotations

import os

import pytest

from yolo_rocm.data import resources
from yolo_rocm.data.worker_count import WORKER_MB, recommended_workers
from yolo_rocm.hardware import system

from ..tables import each_row

pytestmark = pytest.mark.once

LARGE = {"system": "linux", "cores": 64, "gpus": 1, "ram_gb": 256, "shm_gb": 64}
BATCH = 16 * 640 * 640 * 3


@pytest.fixture
def recommended(monkeypatch):
    """Return a function that recommends workers for a machine that is described."""
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)

    def recommend(wanted=None, asked=False, batch_size=16, memfd=False, prefetch=4, image_bytes=BATCH // 16, **facts):
        machine = {**LARGE, **facts}
        for owner, name, value in (
            (resources, "system_name", machine["system"]),
            (system, "cores", machine["cores"]),
            (resources, "training_processes", machine["gpus"]),
            (resources, "ram_available", machine["ram_gb"] * 2**30),
            (resources, "shm_free", machine["shm_gb"] and machine["shm_gb"] * 2**30),
        ):
            monkeypatch.setattr(owner, name, lambda *_, value=value: value)
        return recommended_workers(
            wanted=wanted, asked=asked, batch_size=batch_size, memfd=memfd, prefetch=prefetch, image_bytes=image_bytes
        )

    return recommend


def test_windows_has_none_unless_asked(recommended):
    found = recommended(system="windows", wanted=4)
    assert found.workers == 0
    assert "on Windows every worker is a new process" in found.reason
    assert int(recommended(system="windows", wanted=4, asked=True)) == 4
    assert int(recommended(system="windows", cores=3, asked=True)) == 3


@each_row(
    ("facts", "workers", "binding"),
    [
        ({}, 8, "8 is the default"),
        ({"wanted": 4}, 4, "the preset wants 4"),
        ({"wanted": 16}, 16, "the preset wants 16"),
        ({"cores": 12, "gpus": 4}, 3, "shared by 4 GPUs"),
        ({"cores": 2, "gpus": 8}, 1, "shared by 8 GPUs"),
        ({"ram_gb": 3}, 3, "RAM free"),
        ({"shm_gb": 9 * BATCH / 2**30}, 2, "/dev/shm"),
        ({"system": "macos", "cores": 5, "shm_gb": None}, 5, "5 CPU cores"),
    ],
)
def test_the_smallest_bound_decides_and_is_named(recommended, facts, workers, binding):
    found = recommended(**facts)
    assert (found.workers, int(found)) == (workers, workers)
    assert binding in found.reason
    assert str(found).startswith(f"{workers} worker{'' if workers == 1 else 's'}: ")


def test_zero_only_where_nothing_fits_or_is_wanted(recommended):
    for facts in ({"ram_gb": 0.5}, {"shm_gb": 4 * BATCH / 2**30}):
        found = recommended(**facts)
        assert found.workers == 0
        assert "not one fits" in found.reason
    assert "--shm-size" in found.reason
    assert "not one fits" not in recommended(wanted=0).reason


def test_what_the_user_asks_for_holds_and_what_it_exceeds_is_said(recommended):
    found = recommended(cores=2, ram_gb=2, wanted=12, asked=True)
    assert found.workers == 12
    assert "2 CPU cores" in found.reason
    assert "RAM" in found.reason
    assert recommended(wanted=12, asked=True).reason == "asked for"


def test_memory_counts_the_worker_its_mosaic_images_and_its_batches(recommended):
    def limits(**facts) -> dict[str, int]:
        found = recommended(**{"ram_gb": 32, "image_bytes": 2**20, "prefetch": 2, **facts})
        return {limit.name: limit.workers for limit in found.limits}

    # Half of 32 GB over a worker, 128 images of 1 MB and 2 batches of 16 such images.
    assert limits()["RAM"] == 16384 // (WORKER_MB + 128 + 32)
    assert limits(batch_size=512)["RAM"] == 16384 // (WORKER_MB + 1000 + 1024)
    assert limits(prefetch=4, shm_gb=(16 * 4 * 3 + 15) / 1024)["/dev/shm"] == 2  # one more batch is in use
    assert limits(prefetch=4, shm_gb=(16 * 4 * 3 + 16) / 1024)["/dev/shm"] == 3
    assert "/dev/shm" not in limits(shm_gb=0.1, memfd=True)


def test_shared_memory(tmp_path, monkeypatch):
    assert resources.shm_free(tmp_path) is None
    (tmp_path / "dev/shm").mkdir(parents=True)
    space = type("Space", (), {"f_bavail": 16384, "f_frsize": 4096, "f_blocks": 99999})
    monkeypatch.setattr(os, "statvfs", lambda path: space if path == tmp_path / "dev/shm" else None, raising=False)
    assert resources.shm_free(tmp_path) == 64 * 2**20


def card(number: int, target: int, vram_gb: float) -> dict[str, str]:
    node = f"sys/class/kfd/kfd/topology/nodes/{number}"
    bank = f"heap_type 1\nsize_in_bytes {int(vram_gb * 2**30)}\n"
    return {f"{node}/properties": f"gfx_target_version {target}\n", f"{node}/mem_banks/0/properties": bank}


@pytest.mark.parametrize(
    ("files", "variables", "gpus"),
    [
        ({}, {}, 1),
        # A desktop: the graphics unit in the CPU does not take half of the cores.
        ({**card(1, 110000, 24), **card(2, 100306, 0.5)}, {}, 1),
        ({**card(1, 110000, 24), **card(2, 110000, 24)}, {}, 2),
        ({}, {"LOCAL_WORLD_SIZE": "8"}, 8),
    ],
)
def test_gpus_that_share_the_cores(tmp_path, monkeypatch, files, variables, gpus):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert resources.training_processes(tmp_path) == gpus
