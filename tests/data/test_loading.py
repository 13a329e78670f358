"""Whole trainings with loading workers: what is written, and what happens when workers, files or users break in."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import yolo_rocm
from yolo_rocm.bench.demo_data import make_data

from ..small_model import small_model
from .samples import worker_pids

QUICK = {"imgsz": 32, "batch": 4, "plots": False, "device": "cpu", "seed": 0, "verbose": False, "workers": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return make_data(tmp_path_factory.mktemp("loading"), images=16, size=64)


def train(data: Path, folder: Path, name: str, callbacks=None, **settings):
    from ultralytics import YOLO

    yolo = YOLO(small_model())
    for event, function in (callbacks or {}).items():
        yolo.add_callback(event, function)
    arguments = {**QUICK, "epochs": 2, "data": str(data), "project": str(folder), "name": name, **settings}
    rocm = arguments.pop("rocm", {"loader": {"context": "fork"}})
    handle = yolo_rocm.register(yolo, "cpu", rocm)
    yolo.train(**arguments)
    handle.remove()
    return folder / name


@pytest.mark.timeout(300)
def test_spawned_workers_train_validate_and_leave_their_times(data, tmp_path):
    from ultralytics.data.build import InfiniteDataLoader

    settings, pids = [], []

    def note(trainer) -> None:
        loader = trainer.train_loader
        assert isinstance(loader, InfiniteDataLoader)
        method = loader.multiprocessing_context.get_start_method()
        settings.append((loader.num_workers, trainer.test_loader.num_workers, method, loader.timeout))

    def note_pids(trainer) -> None:
        if trainer.train_loader.iterator is not None:
            pids.append(tuple(worker_pids(trainer.train_loader)))

    run = train(
        data,
        tmp_path,
        "run",
        {"on_train_start": note, "on_train_batch_end": note_pids},
        epochs=3,
        close_mosaic=1,
        workers=1,  # each is spawned twice, and imports torch and Ultralytics
        rocm={"loader": {"context": "spawn", "timeout": 60}},
    )
    assert settings == [(1, 1, "spawn", 60)]  # four images are one batch; a stock loader would ask for four workers
    groups = list(dict.fromkeys(pids))
    assert len(groups) == 2  # kept across epochs, renewed once: when mosaics ended
    for pid in {pid for group in groups for pid in group}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with (run / "rocm_loader.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [row["images"] for row in rows] == ["12", "16", "16"]  # the first batch is measured with
    assert [float(row["setup_s"]) > 0 for row in rows] == [True, False, False]
    assert all(0 <= float(row["wait_share"]) <= 1 for row in rows)


@pytest.mark.once
@pytest.mark.timeout(300)
def test_a_file_that_breaks_in_mid_training_is_named_and_counted(tmp_path):
    data = make_data(tmp_path / "data", images=16, size=64)
    broken = sorted((tmp_path / "data" / "images" / "train").glob("*.jpg"))[3]
    truncate = {"on_train_start": lambda trainer: broken.write_bytes(broken.read_bytes()[:200])}
    run = train(data, tmp_path, "run", truncate, epochs=1)
    report = json.loads((run / "rocm.json").read_text())
    assert list(report["broken_images"]) == [str(broken)]
    with (run / "rocm_loader.csv").open() as file:
        assert sum(int(row["broken"]) for row in csv.DictReader(file)) == report["broken_images"][str(broken)] >= 1


SCRIPT = """
import sys, yolo_rocm
from tests.data.samples import worker_pids
def tell(trainer):
    if trainer.train_loader.iterator is not None:
        with open("pids", "w") as file:
            print(*worker_pids(trainer.train_loader), file=file)
from ultralytics import YOLO
yolo = YOLO("yolov8n.yaml")
yolo.add_callback("on_train_batch_end", tell)
yolo_rocm.register(yolo, "cpu")
yolo.train(data=sys.argv[1], project=sys.argv[2], epochs=50, imgsz=64, batch=4, workers=2, device="cpu", plots=False,
           deterministic=False)
"""


@pytest.mark.once
@pytest.mark.timeout(200)
def test_ctrl_c_ends_a_training_and_its_workers_within_two_seconds(data, tmp_path):
    """The script has no main guard, and spawns: it must not run again in the workers either."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("yolov8n.yaml", small_model()))
    env = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    env["PYTHONPATH"] = str(Path(yolo_rocm.__file__).parents[1])
    with (tmp_path / "log").open("w") as log:
        parent = subprocess.Popen(
            [sys.executable, str(script), str(data), str(tmp_path)], stdout=log, stderr=log, env=env, cwd=tmp_path,
            start_new_session=True,
        )  # fmt: skip
    told = tmp_path / "pids"
    limit = time.monotonic() + 100
    while not (told.exists() and len(told.read_text().split()) == 2) and time.monotonic() < limit:
        assert parent.poll() is None, (tmp_path / "log").read_text()[-2000:]
        time.sleep(0.05)
    pids = [int(word) for word in told.read_text().split()]
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to all of them
    limit = time.monotonic() + 2
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < limit:
        time.sleep(0.02)
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    parent.wait(60)
    assert parent.returncode != 0
    written = (tmp_path / "log").read_text()
    assert written.count("Traceback") == 1  # the training process's own; a worker says nothing
    assert "loader-" not in written
