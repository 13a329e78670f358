"""What happens inside a training without anybody being told: NaN, mosaics that end, a clock."""

from __future__ import annotations

import csv
import logging
from types import SimpleNamespace

import pytest
import torch
from ultralytics.engine.trainer import BaseTrainer

import yolo_rocm
from yolo_rocm.conv.report import ConvReport
from yolo_rocm.session.listeners import LayerNames
from yolo_rocm.session.training import about_nan

from ..sick_vendor import sick_vendor
from ..small_model import small_model
from .test_training import OURS

pytestmark = pytest.mark.once
QUICK = {"imgsz": 32, "batch": 4, "plots": False, "device": "cpu", "seed": 0, "verbose": False, "workers": 0}


@pytest.fixture
def log(caplog):
    logger = logging.getLogger("ultralytics")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def registered(model=None):
    from ultralytics import YOLO

    yolo = YOLO(model or small_model())
    yolo_rocm.register(yolo, "cpu", OURS)
    return yolo


@pytest.mark.skipif(not hasattr(BaseTrainer, "_handle_nan_recovery"), reason="this Ultralytics does not begin again")
def test_a_recovery_from_nan_is_not_passed_over(made_data, tmp_path, log):
    yolo, spoilt = registered(), []

    def spoil(trainer) -> None:
        if trainer.epoch == 1 and not spoilt:
            spoilt.append(trainer.epoch)
            trainer.loss = torch.tensor(float("nan"))

    yolo.add_callback("on_train_epoch_end", spoil)
    with sick_vendor():
        yolo.train(data=str(made_data()), project=str(tmp_path), epochs=3, **QUICK)
    (said,) = [text for text in log.messages if "epoch 2 gave NaN" in text and "doctor" in text]
    assert "amp=False" not in said  # a CPU trains without it
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


@pytest.mark.parametrize("amp", [True, False])
def test_advice_on_nan_names_mixed_precision_where_it_is_used(amp):
    advice = about_nan(SimpleNamespace(amp=amp))
    assert ("try amp=False" in advice) is amp
    assert "yolo-rocm doctor" in advice


def table(yolo, data, folder, **arguments) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """Train; return results.csv without its clock, and the final weights."""
    yolo.train(data=str(data), project=str(folder), name="run", **{**QUICK, **arguments})
    with open(folder / "run" / "results.csv") as file:
        rows = [{k.strip(): float(v) for k, v in row.items() if k.strip() != "time"} for row in csv.DictReader(file)]
    return rows, yolo.trainer.ema.ema.state_dict()


def test_freeze_close_mosaic_and_early_stopping_do_what_they_do_in_stock(made_data, tmp_path):
    """The same decisions at the same moments, and the same numbers."""
    from ultralytics import YOLO

    # Nothing is learnt at this rate, so that patience runs out: both must stop after the same epoch.
    arguments = {"epochs": 4, "freeze": 2, "close_mosaic": 2, "patience": 1, "optimizer": "SGD", "lr0": 1e-6}
    stock, ours, before = YOLO(small_model()), registered(), []
    ours.add_callback("on_train_start", lambda t: before.append(t.model.model[0].conv.weight.detach().clone()))
    wanted, _ = table(stock, made_data(), tmp_path / "stock", **arguments)
    with sick_vendor():
        got, weights = table(ours, made_data(), tmp_path / "ours", **arguments)
    assert len(got) == len(wanted)
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine == pytest.approx(theirs, rel=2e-3, abs=2e-3)
    assert torch.equal(weights["model.0.conv.weight"], before[0])


def test_every_listener_is_closed_whatever_another_raises(tmp_path):
    """A file that cannot be closed leaves no trainer wrapped."""
    from contextlib import ExitStack

    from yolo_rocm.session.training import Training

    class Listener:
        def __init__(self, error=None):
            self.closed, self.error = False, error

        def close(self):
            self.closed = True
            if self.error:
                raise self.error

    training, gave_back = Training.__new__(Training), []
    first, second = Listener(OSError("disk full")), Listener()
    training._listeners, training._held = [first, second], ExitStack()
    training.hold(lambda: gave_back.append(True))
    with pytest.raises(OSError, match="disk full"):
        training.close()
    assert (first.closed, second.closed, gave_back, training.is_open) == (True, True, [True], False)
