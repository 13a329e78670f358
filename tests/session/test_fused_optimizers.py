"""Trainings with SGD fused, as on a GPU: what they learn, and how they go on after a stop, with us and without."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
import torch
from ultralytics import YOLO

import yolo_rocm
from yolo_rocm.bench.demo_data import make_data
from yolo_rocm.ultralytics_hooks import optimizers

from ..small_model import small_model

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
pytestmark = pytest.mark.skipif(VERSION < (2, 5), reason="torch < 2.5 has no fused SGD that takes all layouts")
EPOCHS = 3


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return make_data(tmp_path_factory.mktemp("optimizers"), images=8, size=64)


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    """Have SGD of a CPU fused as that of a GPU is."""
    monkeypatch.setattr(optimizers, "_DEVICES", ("cpu", "cuda"))


def train(project: Path, data: Path | None, ours=True, stop_in=None):
    """Train, or resume where there is no data; return the losses of the epochs, and which kernels made the steps."""
    fused = []

    def epoch_ends(trainer) -> None:
        fused.append({bool(group.get("fused")) for group in trainer.optimizer.param_groups})
        if trainer.epoch + 1 == stop_in:
            raise KeyboardInterrupt

    yolo = YOLO(small_model() if data else str(project / "run" / "weights" / "last.pt"))
    handle = yolo_rocm.register(yolo, "cpu") if ours else None
    yolo.add_callback("on_train_epoch_end", epoch_ends)
    given = {
        "data": str(data), "project": str(project), "name": "run", "epochs": EPOCHS, "imgsz": 32, "batch": 4,
        "nbs": 12, "optimizer": "SGD", "plots": False, "device": "cpu", "seed": 0, "verbose": False,
    }  # fmt: skip
    try:
        yolo.train(**(given if data else {"resume": True}))
    except KeyboardInterrupt:
        assert stop_in
    finally:
        if handle is not None:
            handle.remove()
    with (project / "run" / "results.csv").open() as file:
        found = [{name.strip(): value for name, value in row.items()} for row in csv.DictReader(file)]
    return [row["train/box_loss"] for row in found], fused


@pytest.mark.deep  # two whole trainings more; tests/ultralytics_hooks has the choice of the optimizer
def test_losses_are_those_of_stock_which_goes_on_with_our_checkpoint(data, tmp_path):
    wanted, fused = train(tmp_path / "stock", data, ours=False)
    assert fused == [{False}] * EPOCHS
    stopped, fused = train(tmp_path / "ours", data, stop_in=3)
    assert fused == [{True}] * 3
    assert [float(loss) for loss in stopped] == pytest.approx([float(loss) for loss in wanted[:2]], rel=1e-3)
    got, fused = train(tmp_path / "ours", None, ours=False)
    assert fused == [{False}]
    assert len(got) == EPOCHS
    assert math.isfinite(float(got[-1]))
