"""What happens inside a training without anybody being told: NaN, mosaics that end, a clock."""

from __future__ import annotations

import csv
from types import SimpleNamespace

import pytest
import torch
from ultralytics.engine.trainer import BaseTrainer

import yolo_rocm
from yolo_rocm.conv.report import ConvReport
from yolo_rocm.session.listeners import LayerNames

from ..sick_vendor import sick_vendor
from ..small_model import small_model
from .test_training import OURS

pytestmark = pytest.mark.once
QUICK = {"imgsz": 32, "batch": 4, "plots": False, "device": "cpu", "seed": 0, "verbose": False, "workers": 0}


def registered(model=None):
    from ultralytics import YOLO

    yolo = YOLO(model or small_model())
    yolo_rocm.register(yolo, "cpu", OURS)
    return yolo


@pytest.mark.skipif(not hasattr(BaseTrainer, "_handle_nan_recovery"), reason="this Ultralytics does not begin again")
def test_a_recovery_from_nan_is_not_passed_over(made_data, tmp_path, events):
    yolo, spoilt = registered(), []

    def spoil(trainer) -> None:
        if trainer.epoch == 1 and not spoilt:
            spoilt.append(trainer.epoch)
            trainer.loss = torch.tensor(float("nan"))

    yolo.add_callback("on_train_epoch_end", spoil)
    with sick_vendor():
        yolo.train(data=str(made_data()), project=str(tmp_path), epochs=3, **QUICK)
    (line,) = events.of("epoch.nan")
    assert "epoch 2 gave NaN" in line
    assert "doctor" in line
    assert "amp=False" not in line  # a CPU trains without it
    with open(tmp_path / "train" / "results.csv") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3"]


def test_no_hook_names_the_layers_of_a_compiled_model():
    """It would be compiled with the hook in the first batch, and once more without it in the second."""
    plain, compiled = torch.nn.Conv2d(3, 4, 1), torch.nn.Module()
    compiled._orig_mod = plain
    names = LayerNames(SimpleNamespace(reports=lambda: [ConvReport(1)]))
    for model, hooked in ((plain, True), (compiled, False)):
        names.name(model)
        assert bool(torch.nn.modules.module._global_forward_pre_hooks) is hooked
    names.close()
