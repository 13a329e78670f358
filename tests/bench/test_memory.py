"""`bench memory`: the search for the largest batch, what is counted on a CPU, and what the command says."""

from __future__ import annotations

import csv
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from yolo_rocm.bench import memory, memory_child, memory_count
from yolo_rocm.bench.memory import largest
from yolo_rocm.cli.main import app
from yolo_rocm.errors import ConfigError
from yolo_rocm.utils.child_process import ChildResult

from ..small_model import small_model


@pytest.fixture(scope="module")
def small() -> str:
    return small_model()


def card(image: float, fixed: float, cap: float, curve: float = 0.0):
    """Return what tries a batch on a made card."""

    def peak_of(batch: int) -> float | None:
        peak = fixed + image * batch + curve * batch**2
        return peak if peak <= cap else None

    return peak_of


@pytest.mark.parametrize(
    ("image", "fixed", "curve", "batch"),
    [
        (100.0, 400.0, 0.3, 48),
        (100.0, 400.0, -0.2, 64),
        (2990.0, 10.0, 0.0, 2),
        (5990.0, 10.0, 0.0, 1),
        (9000.0, 10.0, 0.0, 0),
        (1.0, 0.0, 0.0, 1024),
    ],
)
def test_the_largest_batch_is_found(image, fixed, curve, batch):
    peak_of = card(image, fixed, 6000.0, curve)
    found, peaks = largest(peak_of)
    assert found == batch
    assert found == 1024 or peak_of(found + 1) is None
    assert len(peaks) <= 14
    assert all(peaks[size] == peak_of(size) for size in peaks)


GIVEN = {"model": "yolov8n.yaml", "imgsz": 640, "amp": False, "vram_gb": 6}


@pytest.fixture
def small_card(monkeypatch):
    """A card that is sold with 8 GB."""
    card = SimpleNamespace(total_memory=7.98 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)


def test_rows_have_ratios_to_stock_and_keep_errors(small_card):
    images = {"stock": 300.0, "ours": 200.0}

    def tried(given, kind, batch):
        if kind not in images:
            raise RuntimeError("broken")
        return card(images[kind], 144.0, 6144.0)(batch)

    shown = []
    stock, ours, lean = memory.rows(GIVEN, "cuda:0", lambda *moment: shown.append(moment), tried)
    assert (stock.batch, ours.batch, ours.to_stock, ours.how) == (20, 30, 1.5, "measured")
    assert (ours.image_mb, ours.fixed_mb) == pytest.approx((200.0, 144.0))
    assert (lean.batch, lean.to_stock, lean.error) == (None, None, "broken")
    assert shown == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(("memory_gb", "refused"), [(6, False), (8, False), (24, True)])
def test_more_memory_than_there_is_cannot_be_measured(small_card, memory_gb, refused):
    tried = []
    given = {**GIVEN, "vram_gb": memory_gb}
    with pytest.raises(ConfigError, match=r"which has 8\.0 GB") if refused else nullcontext():
        memory.rows(given, "cuda:0", lambda *_: None, lambda *words: tried.append(words))
    assert bool(tried) is not refused
    assert all(words[0]["vram_gb"] == min(memory_gb, 7.98) for words in tried)


@pytest.mark.parametrize(("device", "reported", "usual"), [("cpu", 2, 6), ("cuda:0", 3.98, 4), ("cuda:0", 23.98, 6)])
def test_where_none_is_asked_for_a_small_card_is_looked_at_whole(monkeypatch, device, reported, usual):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=reported * 2**30))
    assert memory.usual_gb(device) == usual


def test_lean_is_counted_once_more_for_the_batch_that_it_says(monkeypatch):
    """Of few images it keeps more of each."""
    calls = []

    def count(model, imgsz, amp, kind, batch, memory_mb):
        calls.append((kind, batch))
        return {None: 100.0, 60: 140.0, 42: 150.0, 40: 150.0}[batch], 144.0

    monkeypatch.setattr(memory_count, "count", count)
    stock, ours, lean = memory.rows(GIVEN, "cpu", lambda *_: None)
    assert (stock.batch, ours.batch, lean.batch, lean.image_mb) == (60, 60, 40, 150.0)
    assert calls == [("stock", None), ("ours", None), *(("ours lean", batch) for batch in (None, 60, 42, 40))]


def test_a_try_is_the_answer_of_its_process(monkeypatch):
    calls = []
    results = [ChildResult({"peak_mb": 12.5}), ChildResult({"peak_mb": None}), ChildResult(error="KeyError: 'x'")]
    monkeypatch.setattr(memory, "run_module", lambda module, given, limit_s: calls.append(given) or results.pop(0))
    assert memory.peak_on_gpu(GIVEN, "ours", 4) == 12.5
    assert memory.peak_on_gpu(GIVEN, "ours", 4) is None
    with pytest.raises(RuntimeError, match="KeyError"):
        memory.peak_on_gpu(GIVEN, "ours", 4)
    assert calls[0] == {**GIVEN, "kind": "ours", "batch": 4}


def test_which_errors_mean_that_it_does_not_fit():
    for text in ("CUDA out of memory. Tried to allocate", "HIP out of memory", "cuDNN: CUDNN_STATUS_INTERNAL_ERROR"):
        assert memory_child.is_full(text)
    assert not memory_child.is_full("miopenStatusInternalError")


@pytest.mark.once
def test_less_is_kept_by_ours_and_least_by_lean(small):
    counts = {kind: memory_count.count(small, 64, False, kind) for kind in memory.KINDS}
    images = [counts[kind][0] for kind in memory.KINDS]
    assert images[1] < 0.95 * images[0]
    assert images[2] < 0.9 * images[1]
    assert images[2] > 3 * 64 * 64 * 4 / 2**20  # the image itself
    module = memory_count.train_steps.detector(small)
    weights = 4 * sum(each.numel() for each in module.parameters()) / 2**20
    assert counts["stock"][1] >= 2.5 * weights
    assert counts["ours"][1] >= 512  # the preset's workspace
    smaller = memory_count.count(small, 64, False, "ours", memory_mb=128)[1]
    assert counts["ours"][1] - smaller == pytest.approx(512 - 128)
    assert memory_count.count(small, 64, True, "stock")[0] < images[0]
    # At 64 px tensors are small: of 8 images all are kept, of very many as few as are counted for any batch.
    few, many = (memory_count.count(small, 64, False, "ours lean", batch)[0] for batch in (8, 10**6))
    assert images[2] == many < few == pytest.approx(images[1])


@pytest.mark.once
def test_the_command_says_that_it_was_counted(small, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = ["bench", "memory", small, "vram_gb=1", "imgsz=64", f"out={tmp_path}"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "counted on cpu" in done.output
    assert "Counted on a CPU, not measured" in " ".join(done.output.split())
    with (tmp_path / "memory-small-fp32-1gb-64.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["way"] for row in rows] == list(memory.KINDS)
    assert {row["how"] for row in rows} == {"counted"}
    for row in rows:
        assert 0 < int(row["batch"]) <= 1024
        assert row["at_limit"] == str(row["batch"] == "1024")
