"""A training that was stopped is resumed: the files of its folder, what is said, and stock Ultralytics, both ways."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import yolo_rocm
from yolo_rocm.bench.demo_data import make_data
from yolo_rocm.telemetry.table import TELEMETRY_FILE
from yolo_rocm.utils import atomic

from ..small_model import small_model

SETTINGS = {
    "epochs": 4, "imgsz": 32, "batch": 4, "optimizer": "SGD", "plots": False, "device": "cpu", "seed": 0,
    "verbose": False, "name": "run",
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return make_data(tmp_path_factory.mktemp("resume"), images=8, size=64)


@pytest.fixture
def said():
    from ultralytics.utils import LOGGER

    lines = []

    def note(record):
        lines.append(record.getMessage())
        return True

    LOGGER.addFilter(note)
    yield lines
    LOGGER.removeFilter(note)


def run(project: Path, data: Path | None, ours=True, callbacks=None, **arguments) -> Path:
    """Train, or resume where there is no data, and return the run's folder."""
    from ultralytics import YOLO

    folder = project / "run"
    yolo = YOLO(small_model() if data else str(folder / "weights" / "last.pt"))
    handle = yolo_rocm.register(yolo, "cpu", {"conv": {"engine": "gemm"}}) if ours else None
    for event, function in (callbacks or {}).items():
        yolo.add_callback(event, function)
    given = {**SETTINGS, "data": str(data), "project": str(project)} if data else {"resume": True}
    yolo.train(**{**given, **arguments})
    if handle is not None:
        handle.remove()
    return folder


class Snapshots:
    """Copies of a run's folder at chosen moments: what a kill at that moment leaves on the disk."""

    def __init__(self, project: Path, kept: Path) -> None:
        self.run, self.kept, self.epoch = project / "run", kept, 0

    def take(self, name: str) -> None:
        """Copy the folder."""
        shutil.copytree(self.run, self.kept / name)

    def put_back(self, name: str) -> None:
        """Make the folder what it was."""
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.kept / name, self.run)

    def replace(self, source, target) -> None:
        """Stand in for os.replace: look before the third `last.pt` gets its name."""
        if self.epoch == 3 and Path(target).name == "last.pt":
            self.take("before the third has its name")
        _replace(source, target)

    def begin_epoch(self, trainer) -> None:
        """Note the epoch, from 1."""
        self.epoch = trainer.epoch + 1

    def in_batch(self, trainer) -> None:
        """Copy the folder after the first batch of some epochs."""
        if self.epoch in (2, 4) and not (self.kept / f"in epoch {self.epoch}").exists():
            self.take(f"in epoch {self.epoch}")

    @property
    def callbacks(self):
        """Return what to register."""
        return {"on_train_epoch_start": self.begin_epoch, "on_train_batch_end": self.in_batch}


_replace = os.replace


@pytest.fixture(scope="module")
def straight(data, tmp_path_factory):
    """A run that nobody stopped, its result, and its disk at the moments when it could have been."""
    project, kept = tmp_path_factory.mktemp("straight"), tmp_path_factory.mktemp("kept")
    snapshots = Snapshots(project, kept)
    atomic.os = SimpleNamespace(**{**vars(os), "replace": snapshots.replace})
    try:
        run(project, data, callbacks=snapshots.callbacks)
    finally:
        atomic.os = os
    assert {path.name for path in (project / "run" / "weights").iterdir()} == {"last.pt", "best.pt"}
    return project, snapshots, rows(project / "run")


def rows(folder: Path) -> list[list[str]]:
    with (folder / "results.csv").open() as file:
        return [[value for key, value in row.items() if key.strip() != "time"] for row in csv.DictReader(file)]


@pytest.mark.parametrize(("moment", "saved"), [("in epoch 4", 3), ("before the third has its name", 2)])
def test_every_epoch_is_there_once(straight, moment, saved):
    project, snapshots, before = straight
    snapshots.put_back(moment)
    assert len(rows(snapshots.run)) == 3  # in one of them of an epoch that is trained again
    watched = (snapshots.run / TELEMETRY_FILE).read_bytes()
    run(project, None)
    got = rows(snapshots.run)
    assert [row[0] for row in got] == [str(epoch) for epoch in range(1, SETTINGS["epochs"] + 1)]
    assert got[:saved] == before[:saved]
    after = (snapshots.run / TELEMETRY_FILE).read_bytes()
    assert after.startswith(watched)
    assert len(after) > len(watched)
    assert after.count(b"time,") == 1
    assert {path.name for path in (snapshots.run / "weights").iterdir()} == {"last.pt", "best.pt"}


@pytest.mark.deep
@pytest.mark.once
def test_ctrl_c_says_how_to_go_on(straight, said):
    project, snapshots, _ = straight
    snapshots.put_back("in epoch 4")
    last = snapshots.run / "weights" / "last.pt"
    before = last.read_bytes()

    def interrupt(trainer) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(project, None, callbacks={"on_train_batch_end": interrupt})
    (line,) = [line for line in said if "stopped by Ctrl-C" in line]
    assert f"{last} is whole and holds epoch 3. To go on (it leaves out the callbacks of your script" in line
    assert line.endswith(f": yolo-rocm train model={last} preset=cpu rocm.conv.engine=gemm device=cpu resume=true")
    assert (snapshots.run / "report.html").exists()
    assert last.read_bytes() == before


@pytest.mark.once
def test_a_checkpoint_of_stock_ultralytics_is_resumed(data, tmp_path):
    snapshots = Snapshots(tmp_path, tmp_path / "kept")
    run(tmp_path, data, ours=False, callbacks=snapshots.callbacks, epochs=2)
    snapshots.put_back("in epoch 2")
    assert len(rows(run(tmp_path, None))) == 2


STOCK = """
import sys
sys.modules["yolo_rocm"] = None
from ultralytics import YOLO
YOLO(sys.argv[1]).train(resume=True)
"""


@pytest.mark.once
def test_stock_ultralytics_resumes_our_run_where_this_package_is_not_installed(straight):
    _, snapshots, before = straight
    snapshots.put_back("in epoch 4")
    last = snapshots.run / "weights" / "last.pt"
    done = subprocess.run([sys.executable, "-c", STOCK, str(last)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(rows(snapshots.run)) == SETTINGS["epochs"]
    assert rows(snapshots.run)[:3] == before[:3]
    assert torch.load(last, weights_only=False)["epoch"] == -1
