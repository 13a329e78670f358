"""`step.layout: auto`: both layouts measured on copies, the faster one kept, the training none the wiser."""

from __future__ import annotations

import copy
import json
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import yolo_rocm
from yolo_rocm.session import layout
from yolo_rocm.session.layout import Times, measure
from yolo_rocm.ultralytics_hooks import probes
from yolo_rocm.ultralytics_hooks.layouts import (
    is_channels_last,
    to_layout,
    train_in_layout,
)
from yolo_rocm.ultralytics_hooks.models import load_model

from ..small_model import small_model
from ..tables import each_row

CPU = torch.device("cpu")
PLAIN = {"device_type": "cpu", "dtype": torch.bfloat16, "enabled": False}


class Net(torch.nn.Module):
    """A model whose loss draws, as some do, and that keeps statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)

    def forward(self, batch):
        """Return a loss, which is all that is asked of it."""
        y = self.norm(self.conv(batch["img"]))
        batch["seen"] = True
        return (y * (random.random() + np.random.rand() + torch.rand(()))).pow(2).mean()[None], None


def generators():
    _, keys, place, *_ = np.random.get_state()
    return random.getstate(), keys.tolist(), place, torch.random.get_rng_state().tolist()


def test_measuring_leaves_everything_as_it_was():
    model, batch = Net().train(), {"img": torch.rand(2, 3, 8, 8)}
    (model(dict(batch))[0] * 2).backward()
    grads = [each.grad.clone() for each in model.parameters()]
    before, drawn = copy.deepcopy(model.state_dict()), generators()
    tuned = []
    found = measure(model, batch, PLAIN, CPU, lambda: tuned.append(is_channels_last(model)))
    assert found.nchw_ms > 0
    assert found.channels_last_ms > 0
    assert found.departure < 1e-5  # both have drawn the same
    assert tuned == [False, False]
    assert generators() == drawn
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(each.grad, grad) for each, grad in zip(model.parameters(), grads, strict=True))
    assert set(batch) == {"img"}


@each_row(
    ("nchw", "last", "departure", "now", "better"),
    [
        (2.0, 1.0, 0.0, "nchw", "channels_last"),
        (1.0, 2.0, 0.0, "nchw", "nchw"),
        (1.0, 2.0, 0.0, "channels_last", "nchw"),
        (1.0, 0.99, 0.0, "nchw", "nchw"),
        (2.0, 1.0, 0.5, "nchw", "nchw"),
        (2.0, 1.0, float("nan"), "channels_last", "nchw"),
    ],
)
def test_the_clearly_faster_layout_is_taken_and_never_one_that_computes_something_else(
    nchw, last, departure, now, better
):
    assert Times(nchw, last, departure).better(now) == better


@pytest.mark.parametrize("last", [True, False])
def test_the_moving_average_follows_a_model_whose_layout_has_changed(last):
    """Ultralytics keeps lists of the tensors that it averages: those of a model in its old layout stand still."""
    from ultralytics.utils.torch_utils import ModelEMA

    models = [to_layout(Net(), not last) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    averages = [ModelEMA(model) for model in models]
    for number, (model, average) in enumerate(zip(models, averages, strict=True)):
        for step in range(3):
            with torch.no_grad():
                model.conv.weight.add_(1)
                model.norm.running_mean.add_(1)
            average.update(model)
            if step == 0 and number:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                train_in_layout(SimpleNamespace(model=model, optimizer=optimizer, ema=average), last)
    expected, found = (average.ema.state_dict() for average in averages)
    assert all(torch.allclose(found[name], value) for name, value in expected.items())
    assert is_channels_last(averages[1].ema) == last


QUICK = {"epochs": 1, "imgsz": 32, "batch": 4, "plots": False, "device": "cpu", "seed": 0, "verbose": False}


@pytest.fixture
def train(made_data, tmp_path, monkeypatch, events):
    """Return a function that trains on the CPU, as if layouts were measured there, with times that are given."""
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(layout, "measurable", lambda device: True)
    monkeypatch.setattr(layout, "_WARM_UP", 0)
    monkeypatch.setattr(layout, "_TIMED", 1)
    rocm = {"conv": {"engine": "gemm", "devices": ["cpu"]}, "loader": {"context": "fork"}}
    data, original = made_data(), layout.measure

    def run(name, times, step=None, **arguments):
        def measured(*args):
            original(*args)
            if isinstance(times, Exception):
                raise times
            return times

        monkeypatch.setattr(layout, "measure", measured)
        yolo = load_model(small_model())
        losses = []
        yolo.add_callback("on_train_batch_end", lambda trainer: losses.append(float(trainer.loss.detach().sum())))
        handle = yolo_rocm.register(yolo, "cpu", {**rocm, "step": step or {}})
        events.clear()
        yolo.train(data=str(data), project=str(tmp_path), name=name, **{**QUICK, **arguments})
        handle.remove()
        rows = json.loads((tmp_path / name / "rocm.json").read_text())["convolutions"]["layers"]
        # The head's fixed convolution computes on a view, in whatever layout.
        met = [row["problem"] for row in rows if row.get("problem") and ".dfl." not in row["layer"]]
        layouts = {"channels_last" in problem for problem in met}
        return losses, layouts, [line for line in events.lines if line.startswith("layout ")]

    def averaged(name):
        saved = torch.load(tmp_path / name / "weights" / "last.pt", weights_only=False)
        return (saved["ema"] or saved["model"]).float().state_dict()

    run.averaged = averaged
    return run


@pytest.mark.skipif(bool(probes.missing("step.layout by measurement")), reason="this Ultralytics keeps the layout")
@pytest.mark.once
def test_a_training_takes_the_faster_layout_and_the_next_one_begins_with_it(train):
    slow, fast = Times(1.0, 2.0, 0.0), Times(2.0, 1.0, 0.0)
    plain, layouts, said = train("plain", fast, step={"layout": "nchw"})
    assert (layouts, said) == ({False}, [])
    same, layouts, (line,) = train("same", slow)
    assert same == plain  # measuring changes no number
    assert layouts == {False}
    assert "layout NCHW: a step took 1.0 ms in NCHW, 2.0 ms in channels_last, kept for later runs" in line
    changed, layouts, (line,) = train("changed", fast, imgsz=64, nbs=4)
    assert (layouts, line[:22]) == ({True}, "layout channels_last: ")
    begun, layouts, (line,) = train("begun", slow, imgsz=64, nbs=4)
    assert (layouts, line[-17:]) == ({True}, "in an earlier run")
    assert begun == pytest.approx(changed, rel=1e-3)
    first, second = train.averaged("changed"), train.averaged("begun")
    assert all(torch.allclose(first[name], value, rtol=1e-2, atol=1e-4) for name, value in second.items())
    _, layouts, lines = train("fails", RuntimeError("out of memory\nand more"), imgsz=96)
    assert layouts == {False}
    assert lines == ["layout NCHW, as it is: the two could not be measured: out of memory"]
