"""What the page says in words: its head, its remarks, and numbers as people read them."""

from __future__ import annotations

import pytest

from yolo_rocm.report.head import head_rows, tiles
from yolo_rocm.report.page import render
from yolo_rocm.report.run_data import read_run
from yolo_rocm.report.words import duration, gigabytes, milliseconds

from ..tables import each_row
from .made_runs import change_column, change_facts, make_run

pytestmark = pytest.mark.once


@each_row(
    ("form", "value", "shown"),
    [
        *((milliseconds, ms, shown) for ms, shown in ((0.0342, "0.034 ms"), (0.6, "0.60 ms"), (9.996, "10.0 ms"))),
        *((milliseconds, ms, shown) for ms, shown in ((99.96, "100 ms"), (999.9, "1.0 s"), (90_000, "90.0 s"))),
        *((duration, s, shown) for s, shown in ((0.04, "40.0 ms"), (99.94, "99.9 s"), (99.96, "1 min 40 s"))),
        *((duration, s, shown) for s, shown in ((3599, "59 min 59 s"), (3599.7, "1 h 0 min"), (90_000, "25 h 0 min"))),
        *((gigabytes, mb, shown) for mb, shown in ((512, "0.50 GB"), (6128, "5.98 GB"), (24 * 1024, "24.0 GB"))),
    ],
)
def test_numbers_are_easy_to_read(form, value, shown):
    assert form(value) == shown


def test_the_head_says_what_was_trained_on_what(tmp_path):
    folder = make_run(tmp_path / "run", epochs=2, batches=1000)
    gpus = [{"name": "RX 5600 XT", "vram_gb": 6.0}, {"name": "Vega 8", "hidden_by": "HIP_VISIBLE_DEVICES"}]
    change_facts(folder, machine={"gpus": gpus, "cores": 8}, run={"began": "2026-11-16T01:02+00:00"})
    (folder / "args.yaml").write_text("model: /a/yolov8n.yaml\ndata: 'C:\\sets\\coco\\data.yaml'\nepochs: 2\n")
    run = read_run(folder)
    assert head_rows(run) == [
        ("device", "RX 5600 XT, 6.0 GB"),
        ("model", "yolov8n.yaml"),
        ("data", "coco/data.yaml"),
        ("preset", "rx5600xt"),
        ("began", "2026-11-16 01:02+00:00"),
        ("total time", "3 min 24 s"),
    ]
    assert "<h2>GPU and host</h2>" in render([run])
    (folder / "rocm.json").unlink()
    assert [label for label, _ in head_rows(read_run(folder))] == ["model", "data", "total time"]


def test_tiles(tmp_path):
    folder = make_run(tmp_path / "run", asked=5)
    change_facts(folder, step={"step_ms": 5385.6})
    assert {tile.label: tile.shown for tile in tiles(read_run(folder))} == {
        "images/s": "75.5",
        "waited for data": "0.8%",
        "training of an epoch": "606 ms",
        "epochs": "3 of 5",
        "best mAP50-95(B)": "0.267",
        "GPU busy": "97%",
        "peak GPU memory": "3.91 GB",
        "GPU memory in use": "65%",
        "hottest": "61 °C",
        "mean power": "110 W",
        "CPU of the host": "45%",
        "sampled step, while watched": "5.4 s",
    }


CLASSES = {"convolution": 40.0, "normalisation": 25.0, "activation": 0.0, "loss": 15.0, "optimizer": 5.0, "other": 15.0}


def test_a_step_is_shown_by_class_of_operator(tmp_path):
    folder = make_run(tmp_path / "run", layers=3)
    change_facts(folder, step={"step_ms": 100.0, "classes_ms": CLASSES})
    run = read_run(folder)
    page = render([run])
    assert list(run.classes_ms) == ["convolution", "normalisation", "loss", "other", "optimizer"]
    assert "<h3>Time of a step by class of operator</h3>" in page
    assert all(shown in page for shown in ("40.0 ms, 40%", "15.0 ms, 15%", "5.00 ms, 5%"))
    assert "convolutions below, 40% of a step, would" in run.verdict.sentence
    assert "optimizer made" not in page
    change_facts(folder, step={"classes_ms": {**CLASSES, "optimizer": None, "loss": "x", "unheard of": 3.0}})
    assert "In none of the sampled steps the optimizer made its own." in render([read_run(folder)])


def test_a_host_that_sets_the_pace_is_named_with_its_times(tmp_path):
    folder = make_run(tmp_path / "run", epochs=3, batches=101, busy=15.0)  # 0.101 s for each
    change_facts(folder, step={"step_ms": 53.0, "host_ms": 41.04, "device_ms": 42.0})
    run = read_run(folder)
    assert run.verdict.name == "host-bound"
    assert "after 42.0 ms; try device graphs" in run.verdict.sentence
    page = render([run])
    assert "after 42.0 ms: the GPU waits for the host." in page
    assert run.launch.after_ms == pytest.approx(100 - 42)
    change_facts(folder, step={"host_ms": 12.0, "device_ms": 40.0})
    assert "after 40.0 ms: the host is ahead of the GPU." in render([read_run(folder)])


def test_graphs_are_not_advised_where_they_were_tried_or_cannot_be(tmp_path):
    folder = make_run(tmp_path / "run", busy=15.0)
    for facts in ({"graphs": ["off"]}, {"settings": {"values": {"conv.engine": {"value": "vendor"}}}, "graphs": []}):
        change_facts(folder, step={"host_ms": 41.0, "device_ms": 42.0}, **facts)
        sentence = read_run(folder).verdict.sentence
        assert "41.0 ms to launch" in sentence
        assert "rocm.step.graph" not in sentence


def test_a_batch_that_did_not_fit_is_named(tmp_path):
    folder = make_run(tmp_path / "run", busy=60.0)
    change_facts(folder, batch={"asked": 32, "used": 8})
    sentence = read_run(folder).verdict.sentence
    assert sentence.startswith("Memory-bound: a batch of 32 did not fit and one of 8 did, 65% of the GPU's memory")


def test_only_the_time_of_training_counts_for_the_verdict(tmp_path):
    """Validation leaves a GPU idle now and then, and says nothing about the steps."""
    folder = make_run(tmp_path / "run", epochs=2, batches=100)
    with (folder / "rocm_telemetry.csv").open("a") as file:
        for second in range(60):
            file.write(f"{1100 + second},0,4000,6128,60,110,3500,45,9000,sysfs\n")
    run = read_run(folder)
    assert run.busy > 0.9
    assert run.verdict.name == "GPU-bound"
    (folder / "rocm_loader.csv").unlink()
    assert read_run(folder).busy is None  # when it trained is not known


@pytest.mark.parametrize(("map_50_95", "remarked"), [((0, 0, 0), True), ((0, 0, 0.001), False), (("", "", ""), False)])
def test_map_0_is_remarked_on(tmp_path, map_50_95, remarked):
    folder = make_run(tmp_path / "run")
    change_column(folder / "results.csv", "metrics/mAP50-95(B)", map_50_95)
    found = [remark for remark in read_run(folder).remarks if "mAP50-95(B) is 0 after 3 epochs" in remark]
    assert bool(found) is remarked
