"""`train.batch: auto`: the batch follows from what `bench memory` counts, and never exceeds it."""

from __future__ import annotations

import pytest

import yolo_rocm
from yolo_rocm.hardware import Machine
from yolo_rocm.preset.batch import BESIDES_MB, IMAGE_MB, USED, WORKSPACE_MB, batch_for
from yolo_rocm.preset.resolve import resolve
from yolo_rocm.preset.step import memory_for

from ..tables import each_row
from ..thinning import deep_but
from .test_select import amd

pytestmark = pytest.mark.once

CARDS_GB = (2, 3, 4, 6, 8, 10, 11, 12, 16, 20, 24, 28, 32, 48, 64, 192)


@each_row(
    ("memory", "lean", "full", "stock"),
    [
        (None, None, None, None),
        (2, 1, 1, 1),
        (4, 8, 4, 2),
        (5.98, 16, 8, 4),
        (8, 16, 8, 8),
        (11.99, 32, 16, 8),
        (16, 32, 16, 16),
        (23.98, 64, 32, 32),
        (288, 64, 64, 64),
    ],
)
def test_batch_by_memory_and_by_what_a_step_keeps(memory, lean, full, stock):
    """A power of two, at most 64; drivers report a little less than is sold."""
    assert [batch_for(memory, keeps=keeps) for keeps in ("lean", "full", "stock")] == [lean, full, stock]


KEPT = [("stock", "stock"), ("full", "ours"), ("lean", "ours lean")]


@pytest.mark.parametrize("kept", deep_but(KEPT, KEPT[2]), ids=str)
def test_no_batch_exceeds_what_the_count_says_fits(kept):
    """Counted again for yolov8s in fp32 with images a quarter as wide, which keep a sixteenth."""
    from yolo_rocm.bench.memory_count import count

    keeps, kind = kept
    image_mb, fixed_mb = count("yolov8s.yaml", 160, False, kind)
    image_mb *= 16
    fixed_mb += WORKSPACE_MB if kind == "stock" else 0
    for memory_gb in CARDS_GB:
        batch = batch_for(memory_gb, keeps=keeps)
        assert batch == 1 or fixed_mb + batch * image_mb <= USED * memory_gb * 1024
        assert batch in (1, 64) or fixed_mb + 2 * batch * image_mb > 0.97 * USED * memory_gb * 1024  # nor is much left
    assert image_mb == pytest.approx(IMAGE_MB[keeps], rel=0.02)
    assert fixed_mb == pytest.approx(BESIDES_MB + WORKSPACE_MB, rel=0.02)


@each_row("name", yolo_rocm.presets())
def test_no_shipped_preset_has_a_batch_of_its_own(name):
    """Each follows from its card's memory and from what the preset keeps for backward."""
    preset = resolve(name, machine=Machine()).preset
    keeps, workspace_mb = memory_for(preset.match.vram_gb), max(WORKSPACE_MB, preset.conv.memory_mb or 0)
    expected = batch_for(preset.match.vram_gb, keeps=keeps, workspace_mb=workspace_mb)
    assert preset.train.get("batch") == expected


@each_row(
    ("rocm", "batch", "why"),
    [
        ({}, 16, "6 GB, lean"),
        ({"step": {"memory": "full"}}, 8, "6 GB"),
        ({"conv": {"engine": "vendor", "vendor": "on"}}, 4, "6 GB, stock"),
        ({"conv": {"memory_mb": 2048}}, 4, "6 GB, lean"),
    ],
    ids=str,
)
def test_the_batch_follows_what_the_user_changes(rocm, batch, why):
    settings = resolve("auto", {**rocm, "train": {"batch": "auto"}}, machine=amd("gfx1032", 6))
    assert settings.preset.train["batch"] == batch
    assert settings.origins["train.batch"] == f"rocm (auto: {why})"


@each_row(("imgsz", "batch"), [(None, 32), (320, 32), (640, 32), (1280, 8), (960, 16), ("640", 32)])
def test_larger_images_make_smaller_batches(imgsz, batch):
    assert batch_for(24, imgsz=imgsz) == batch
    settings = resolve("auto", None, {"imgsz": imgsz}, machine=amd("gfx1100", 24))
    assert settings.preset.train["batch"] == batch
    written = resolve("auto", {"train": {"imgsz": imgsz}}, machine=amd("gfx1100", 24))
    assert written.preset.train["batch"] == written.for_images(None).preset.train["batch"] == batch
    assert written.for_images(2560).preset.train["batch"] == 2


def test_shared_memory_counts_half_and_few_large_images_keep_more():
    assert (batch_for(24, shared=True), batch_for(2, shared=True)) == (16, 1)
    assert batch_for(4, keeps="lean", imgsz=1280) == 2


@each_row(
    ("imgsz", "batch"),
    [*((size, 8) for size in ("1280", [1280, 640], (640, 1280), "1280,640", "[1280, 1280]")), ("abc", 32), ([], 32)],
    ids=str,
)
def test_the_longer_side_counts_and_what_is_no_size_is_for_ultralytics_to_refuse(imgsz, batch):
    assert batch_for(24, imgsz=imgsz) == batch
