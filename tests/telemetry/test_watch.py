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
from yolo_rocm.telemetry import sampler as samplers
from yolo_rocm.telemetry import table as tables
from yolo_rocm.telemetry.classes import CLASSES
from yolo_rocm.telemetry.table import COLUMNS, TELEMETRY_FILE

from ..small_model import small_model

ROCM = {"conv": {"engine": "gemm", "devices": ["cpu"]}, "report": {"interval_s": 0.1}, "loader": {"context": "fork"}}
QUICK = {"imgsz": 32, "batch": 2, "plots": False, "device": "cpu", "seed": 0, "verbose": False, "val": False}


def watchers():
    return [thread for thread in threading.enumerate() if thread.name == "yolo_rocm telemetry"]


@pytest.fixture(scope="module")
def run(made_data, tmp_path_factory):
    """Train two epochs of four steps; return the folder, when it began, and threads seen in each batch."""
    from ultralytics import YOLO

    folder, seen, began = tmp_path_factory.mktemp("telemetry"), [], time.monotonic()
    yolo = YOLO(small_model())
    handle = yolo_rocm.register(yolo, "cpu", ROCM)
    yolo.add_callback("on_train_batch_end", lambda _: seen.append(len(watchers())))
    yolo.train(data=str(made_data()), project=str(folder), name="run", epochs=2, nbs=4, **QUICK)
    handle.remove()
    return folder / "run", began, seen


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_table_covers_the_training_and_the_thread_ends_with_it(run):
    folder, began, seen = run
    assert seen == [1] * 8
    assert watchers() == []
    rows = read(folder / TELEMETRY_FILE)
    assert tuple(rows[0]) == COLUMNS
    clock = [float(row["time"]) for row in rows]
    assert clock == sorted(clock)
    batches = read(folder / "rocm_timeline.csv")  # the same clock
    assert began < clock[0] < float(batches[-1]["got"])  # a busy machine may start the thread after the first batch
    assert float(batches[0]["got"]) < clock[-1] < time.monotonic()  # goes on while it trains
    if sys.platform == "linux":
        assert {row["source"] for row in rows} == {"proc"}
        assert all(float(row["host_memory_mb"]) > 0 for row in rows)
        assert any(0 <= float(row["host_cpu_percent"] or -1) <= 100 for row in rows)
    assert {batch["worker"] for batch in batches} == {"-1"}  # no worker: the training process reads
    assert all(row["busy_percent"] == row["vram_used_mb"] == row["torch_reserved_mb"] == "" for row in rows)


def test_every_layer_has_times_and_they_fit_into_the_step(run):
    report = json.loads((run[0] / "rocm.json").read_text())
    assert report["step"]["steps"] == [5, 6, 7]
    assert report["step"]["sampled_steps"] == 3
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
    assert tuple(classes) == CLASSES
    assert step["class_steps"] == 3  # the optimizer made its step in some of them
    assert sum(classes.values()) == pytest.approx(step["step_ms"], rel=0.2)  # medians of classes
    # All activations of this model are computed with the BatchNorm before them.
    assert [kind for kind, ms in classes.items() if ms <= 0] == ["activation"]
    assert "host_ms" not in step  # there is no device to wait for it


@pytest.mark.once
def test_the_trainer_is_its_own_after_a_step_that_was_watched(made_data, tmp_path):
    from ultralytics import YOLO

    seen, own = [], []

    def see(trainer):
        watched = trainer.optimizer_step.__name__ == "told_step", trainer.scaler.scale.__name__ == "told_scale"
        own.append(BaseModel._predict_once)  # as the session has it, from the first batch on
        seen.append((*watched, own[-1] is own[0]))

    from ultralytics.nn.tasks import BaseModel

    yolo = YOLO(small_model())
    handle = yolo_rocm.register(yolo, "cpu", {**ROCM, "step": {"memory": "full"}})
    yolo.add_callback("on_train_batch_start", see)
    yolo.add_callback("on_train_batch_end", see)
    yolo.train(data=str(made_data()), project=str(tmp_path), name="run", epochs=1, **QUICK)
    handle.remove()
    free, watched = (False, False, True), (True, True, False)
    assert seen == [free, free, watched, free, watched, free, free, free]  # four batches, each when it starts and ends


class Stop(Exception):
    """Ends a training."""


@pytest.fixture
def stopped(made_data, tmp_path):
    """Return a function that begins a training and leaves it by an error in a callback; it returns the table."""
    from ultralytics import YOLO

    def train(rocm, event, callback):
        yolo = YOLO(small_model())
        yolo_rocm.register(yolo, "cpu", rocm)
        yolo.add_callback(event, callback)
        with pytest.raises((Stop, KeyboardInterrupt)):
            yolo.train(data=str(made_data()), project=str(tmp_path), name="run", epochs=1, **QUICK)
        return tmp_path / "run" / TELEMETRY_FILE

    return train


@pytest.mark.once
def test_ctrl_c_ends_the_thread_and_keeps_the_rows(stopped):
    def stop(trainer):
        assert len(watchers()) == 1
        raise KeyboardInterrupt

    assert len(read(stopped(ROCM, "on_train_batch_start", stop))) >= 1
    assert watchers() == []


@pytest.mark.once
def test_an_end_by_an_error_is_a_line_in_the_log_of_the_training(stopped, monkeypatch, events):
    def broken(*row):
        raise RuntimeError("the disk is gone")

    def stop(trainer):
        for thread in watchers():
            thread.join(60)
        raise Stop

    monkeypatch.setattr(tables.TelemetryTable, "add", broken)
    stopped(ROCM, "on_train_start", stop)
    assert events.of("telemetry.trouble") == ["telemetry has ended, training goes on: RuntimeError: the disk is gone"]
    assert "telemetry.trouble" in events.warnings


@pytest.mark.once
@pytest.mark.parametrize("how", ["YOLO_ROCM=0", "report.telemetry=false"])
def test_nothing_watches_when_it_is_off(stopped, monkeypatch, how):
    def stop(trainer):
        raise Stop

    monkeypatch.setattr(samplers.threading.Thread, "start", lambda thread: pytest.fail(f"{thread.name} was started"))
    rocm = {**ROCM, "report": {"telemetry": False}}
    if how == "YOLO_ROCM=0":
        monkeypatch.setenv("YOLO_ROCM", "0")
        rocm = ROCM
    assert not stopped(rocm, "on_train_start", stop).exists()
