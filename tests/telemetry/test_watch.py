"""Telemetry and sampled times of real trainings on a CPU."""

from __future__ import annotations

import csv
import json
import sys
import threading
import time

import pytest
import torch

import yolo_rocm
from yolo_rocm.telemetry.classes import CLASSES
from yolo_rocm.telemetry.table import COLUMNS, TELEMETRY_FILE

from ..small_model import small_model

ROCM = {"conv": {"engine": "gemm", "devices": ["cpu"]}, "report": {"interval_s": 0.1}, "loader": {"context": "fork"}}
QUICK = {"imgsz": 32, "batch": 2, "plots": False, "device": "cpu", "seed": 0, "verbose": False, "val": False}


def watchers():
    return [thread for thread in threading.enumerate() if thread.name == "yolo_rocm telemetry"]


@pytest.fixture(scope="module")
def run(made_data, tmp_path_factory):
    """Train two epochs of four steps; return the folder, when it began, and what was seen in each batch."""
    from ultralytics import YOLO
    from ultralytics.nn.tasks import BaseModel

    folder, seen, began = tmp_path_factory.mktemp("telemetry"), [], time.monotonic()
    own = []

    def see(trainer):
        replaced = [function.__name__ for function in (trainer.optimizer_step, trainer.scaler.scale)]
        own.append(BaseModel._predict_once)  # as the session has it, from the first batch on
        seen.append((len(watchers()), replaced == ["told_step", "told_scale"], own[-1] is own[0]))

    yolo = YOLO(small_model())
    handle = yolo_rocm.register(yolo, "cpu", {**ROCM, "step": {"memory": "full"}})
    yolo.add_callback("on_train_batch_start", see)
    yolo.add_callback("on_train_batch_end", see)
    yolo.train(data=str(made_data()), project=str(folder), name="run", epochs=2, nbs=4, **QUICK)
    handle.remove()
    return folder / "run", began, seen


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_table_covers_the_training_and_the_thread_ends_with_it(run):
    folder, began, seen = run
    free, watched = (1, False, True), (1, True, False)
    # A step that is watched has places in the trainer and in the network while it goes on; steps 2, 3, 5, 6 and 7 are.
    assert seen == [each for step in range(1, 9) for each in (watched if step in (2, 3, 5, 6, 7) else free, free)]
    assert watchers() == []
    rows = read(folder / TELEMETRY_FILE)
    assert tuple(rows[0]) == COLUMNS
    clock = [float(row["time"]) for row in rows]
    assert clock == sorted(clock)
    first, last = read(folder / "rocm_loader.csv")  # the same clock
    assert began < clock[0] < float(last["began"]) + float(last["seconds"])
    assert float(first["began"]) < clock[-1] < time.monotonic()  # goes on while it trains
    if sys.platform == "linux":
        assert {row["source"] for row in rows} == {"proc"}
        assert all(float(row["host_memory_mb"]) > 0 for row in rows)
    assert all(row["busy_percent"] == row["vram_used_mb"] == row["torch_reserved_mb"] == "" for row in rows)


def test_every_layer_has_times_and_they_fit_into_the_step(run):
    report = json.loads((run[0] / "rocm.json").read_text())
    assert report["step"]["steps"] == [5, 6, 7]
    rows = report["convolutions"]["layers"]
    trained = {row["layer"]: row["times_ms"] for row in rows if row.get("times_ms")}
    layers = {row["layer"] for row in rows}
    assert layers - set(trained) == {"model.4.dfl.conv"}  # runs in validation alone
    assert all(times["forward"] > 0 and times["grad_weight"] > 0 for times in trained.values())
    assert {name for name, times in trained.items() if "grad_input" not in times} == {"model.0.conv"}
    total = sum(sum(times.values()) for times in trained.values())
    assert 0.02 * report["step"]["step_ms"] < total < report["step"]["step_ms"]


def test_the_step_is_split_by_class_of_operator(run):
    step = json.loads((run[0] / "rocm.json").read_text())["step"]
    if torch.__version__.startswith("1."):  # does not say which node of the backward pass begins
        assert "classes_ms" not in step
        return
    classes = step["classes_ms"]
    # All activations of this model are computed with the BatchNorm before them.
    assert [kind for kind in CLASSES if kind not in classes] == ["activation"]
    assert sum(classes.values()) == pytest.approx(step["step_ms"], rel=0.5)  # medians of classes


@pytest.mark.once
def test_ctrl_c_ends_the_thread_and_keeps_the_rows(made_data, tmp_path):
    from ultralytics import YOLO

    def stop(trainer):
        assert len(watchers()) == 1
        raise KeyboardInterrupt

    yolo = YOLO(small_model())
    yolo_rocm.register(yolo, "cpu", ROCM)
    yolo.add_callback("on_train_batch_start", stop)
    with pytest.raises(KeyboardInterrupt):
        yolo.train(data=str(made_data()), project=str(tmp_path), name="run", epochs=1, **QUICK)
    assert len(read(tmp_path / "run" / TELEMETRY_FILE)) >= 1
    assert watchers() == []
