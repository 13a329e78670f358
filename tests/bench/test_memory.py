"""`bench memory`: the search for the largest batch, what is counted on a CPU, and what the command says."""

from __future__ import annotations

import csv
import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from yolo_rocm.bench import memory, memory_child, memory_count
from yolo_rocm.bench.memory import Trial, largest, line_through
from yolo_rocm.cli.main import app
from yolo_rocm.errors import ConfigError
from yolo_rocm.utils.child_process import ChildResult

from ..small_model import small_model


@pytest.fixture(scope="module")
def small() -> str:
    return small_model()


def card(image: float, fixed: float, cap: float, curve: float = 0.0):
    """Return what tries a batch on a made card."""

    def fits(batch: int) -> Trial:
        peak = fixed + image * batch + curve * batch**2
        return Trial(peak if peak <= cap else None)

    return fits


@pytest.mark.parametrize(
    ("image", "fixed", "curve", "batch"),
    [
        (100.0, 400.0, 0.0, 56),
        (100.0, 400.0, 0.3, 48),
        (100.0, 400.0, -0.2, 64),
        (2990.0, 10.0, 0.0, 2),
        (5990.0, 10.0, 0.0, 1),
        (9000.0, 10.0, 0.0, 0),
        (1.0, 0.0, 0.0, 1024),
        (0.0, 10.0, 0.0, 1024),
    ],
)
def test_the_largest_batch_is_found_with_few_tries(image, fixed, curve, batch):
    fits = card(image, fixed, 6000.0, curve)
    found, tries = largest(fits, 6000.0)
    assert found == batch
    assert found == 1024 or fits(found + 1).peak_mb is None
    assert len(tries) <= 12
    assert all(tries[size] == fits(size) for size in tries)


@pytest.mark.parametrize("part", [0.8, 0.5])
def test_a_card_that_fails_before_its_peak_reaches_the_cap(part):
    peaks = card(8.0, 400.0, 6000.0 * part)
    found, tries = largest(peaks, 6000.0)
    assert found == int((6000.0 * part - 400.0) / 8.0)
    assert len(tries) <= 16


def test_an_allocator_that_makes_do_with_what_there_is_points_nowhere():
    """As measured with yolov8s in 6 GB: the last batches take the same, or less, and one more does not fit."""
    peaks = {2: 900.0, 4: 1524.0, 18: 5900.0, 19: 6000.0, 20: 6000.0, 21: 5990.0}

    def fits(batch):
        return Trial(peaks.get(batch, 400.0 + 270.0 * batch) if batch <= 21 else None)

    found, tries = largest(fits, 6144.0)
    assert found == 21
    assert len(tries) <= 8


@pytest.mark.parametrize("batch", [41, 84, 200])
def test_more_fits_than_the_line_says_where_the_allocator_makes_do(batch):
    """Reserved memory stays just below the cap for a fifth of the way."""

    def fits(size):
        return Trial(min(300.0 + 5700.0 / (0.8 * batch) * size, 6000.0) if size <= batch else None)

    found, tries = largest(fits, 6144.0)
    assert found == batch
    assert len(tries) <= 16


def test_a_card_that_is_not_monotonous_ends_too():
    found, tries = largest(lambda batch: Trial(None if batch % 3 == 0 else 10.0 * batch), 10000.0)
    assert tries[found].peak_mb is not None
    assert found == 1024 or tries[found + 1].peak_mb is None


def test_an_error_ends_the_search():
    found, tries = largest(lambda batch: Trial(None, "no such model"), 6000.0)
    assert found is None
    assert tries == {2: Trial(None, "no such model")}
    assert line_through((2, 30.0), (6, 50.0)) == (5.0, 20.0)


GIVEN = {"model": "yolov8n.yaml", "imgsz": 640, "amp": False, "vram_gb": 6}


@pytest.fixture
def small_card(monkeypatch):
    """A card that is sold with 8 GB."""
    card = SimpleNamespace(total_memory=7.98 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)


def test_rows_have_ratios_to_stock_and_keep_errors(small_card):
    images = {"stock": 300.0, "ours": 200.0}

    def tried(given, kind, batch):
        return card(images[kind], 144.0, 6144.0)(batch) if kind in images else Trial(None, "broken")

    shown = []
    stock, ours, lean = memory.rows(GIVEN, "cuda:0", lambda *moment: shown.append(moment), tried)
    assert (stock.batch, ours.batch, ours.to_stock, ours.how) == (20, 30, 1.5, "measured")
    assert (ours.image_mb, ours.fixed_mb) == pytest.approx((200.0, 144.0))
    assert (lean.batch, lean.to_stock, lean.error) == (None, None, "broken")
    assert shown == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("images", "ratios"), [((0.5, 0.25, 0.1), (None,) * 3), ((300.0, 200.0, 0.1), (1.0, 1.5, None))]
)
def test_a_batch_that_is_the_limit_has_no_ratio(small_card, images, ratios):
    """It may be any larger."""
    peaks = dict(zip(memory.KINDS, images, strict=True))
    found = memory.rows(
        GIVEN, "cuda:0", lambda *_: None, lambda given, kind, batch: card(peaks[kind], 144.0, 6144.0)(batch)
    )
    assert [each.at_limit for each in found] == [image < 1 for image in images]
    assert tuple(each.to_stock for each in found) == ratios


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize(
    ("changed", "text"),
    [
        *(({"vram_gb": gb}, "vram_gb must be a number above 0, such as 6, got") for gb in (0, -1, True, "six", None)),
        ({"vram_gb": float("inf")}, "vram_gb must be a number above 0"),
        *(({"imgsz": size}, "imgsz must be a whole number of at least 64") for size in ("foo", 30, -64, (640, 480))),
        ({"imgsz": 100}, "imgsz must be a multiple of 32"),
        ({"amp": "maybe"}, "amp must be true or false, got 'maybe'"),
        ({"memory_mb": "much"}, "memory_mb must be a whole number"),
        ({"model": "coco8.yaml"}, "'coco8.yaml' is no model"),
        ({"model": "yolov8n-cls.yaml"}, "whose task is 'classify'"),
    ],
    ids=str,
)
def test_wrong_values(small_card, device, changed, text):
    with pytest.raises(ConfigError, match=text):
        memory.rows({**GIVEN, **changed}, device, lambda *_: None, lambda *_: pytest.fail("nothing is to be measured"))


@pytest.mark.parametrize(("memory_gb", "refused"), [(6, False), (8, False), (9, True), (24, True)])
def test_more_memory_than_there_is_cannot_be_measured(small_card, memory_gb, refused):
    tried = []
    given = {**GIVEN, "vram_gb": memory_gb}
    with pytest.raises(ConfigError, match=r"which has 8\.0 GB") if refused else nullcontext():
        memory.rows(given, "cuda:0", lambda *_: None, lambda *words: tried.append(words) or Trial(None, "broken"))
    assert bool(tried) is not refused
    assert all(words[0]["vram_gb"] == min(memory_gb, 7.98) for words in tried)


@pytest.mark.parametrize(("device", "reported", "usual"), [("cpu", 2, 6), ("cuda:0", 3.98, 4), ("cuda:0", 23.98, 6)])
def test_where_none_is_asked_for_a_small_card_is_looked_at_whole(monkeypatch, device, reported, usual):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=reported * 2**30))
    assert memory.usual_gb(device) == usual


def test_lean_is_counted_once_more_for_the_batch_that_it_says(monkeypatch):
    """Of few images it keeps more of each."""
    asked = []

    def count(model, imgsz, amp, kind, batch, memory_mb):
        asked.append((kind, batch))
        assert memory_mb == 128
        return {None: 100.0, 60: 140.0, 42: 150.0, 40: 151.0, 39: 151.0}[batch], 144.0

    monkeypatch.setattr(memory_count, "count", count)
    stock, ours, lean = memory.rows({**GIVEN, "memory_mb": 128}, "cpu", lambda *_: None)
    assert (stock.batch, ours.batch) == (60, 60)
    assert (lean.batch, lean.image_mb) == (39, 151.0)
    assert asked == [("stock", None), ("ours", None), *(("ours lean", batch) for batch in (None, 60, 42, 40, 39))]


def test_a_try_is_the_answer_of_its_process(monkeypatch):
    asked = []
    results = [ChildResult({"peak_mb": 12.5, "error": ""}), ChildResult(error="KeyError: 'x'")]
    monkeypatch.setattr(memory, "run_module", lambda module, given, limit_s: asked.append(given) or results.pop(0))
    assert memory.try_on_gpu(GIVEN, "ours", 4) == Trial(12.5)
    assert memory.try_on_gpu(GIVEN, "ours", 4) == Trial(None, "KeyError: 'x'")
    assert asked[0] == {**GIVEN, "kind": "ours", "batch": 4}


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("HIP out of memory", True),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", True),
        ("miopenStatusInternalError", False),
        ("shape '[2]' is invalid", False),
    ],
)
def test_which_errors_mean_that_it_does_not_fit(text, full):
    assert memory_child.is_full(text) == full


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


def test_the_command_says_where_there_may_be_more(tmp_path, monkeypatch):
    found = [
        memory.Holds(kind, batch, None, 1.0, 2.0, "counted", batch == 1024)
        for kind, batch in (("stock", 9), ("ours", 1024))
    ]
    monkeypatch.setattr(memory, "rows", lambda *_: found)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = ["bench", "memory", "yolov8n.yaml", f"out={tmp_path}"]
    lines = [line.split() for line in CliRunner().invoke(app, words).output.splitlines()]
    assert ["stock", "9", "-", "1.0", "2"] in lines
    assert ["ours", "1024", "or", "more", "-", "1.0", "2"] in lines
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert [way["at_limit"] for way in told["ways"]] == [False, True]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_lean_holds_a_larger_batch(small):
    given = {"model": small, "imgsz": 320, "amp": False, "vram_gb": 1}
    stock, ours, lean = memory.rows(given, "cuda:0", lambda *_: None)
    assert stock.error == ours.error == lean.error == ""
    assert 0 < stock.batch <= ours.batch <= lean.batch
