"""`step.graph` in whole trainings, with a stand-in for device graphs: same numbers, one line, nothing left."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

import yolo_rocm
from yolo_rocm.graphs import network, recorder
from yolo_rocm.preset.schema import Preset
from yolo_rocm.session.listeners import Graphs
from yolo_rocm.ultralytics_hooks import probes
from yolo_rocm.ultralytics_hooks.models import load_model, plain_model

from ..graphs.trained import StandIn, cpu_has_graphs
from ..small_model import small_model

QUICK = {"epochs": 1, "imgsz": 32, "batch": 2, "plots": False, "device": "cpu", "seed": 0, "val": False}
pytestmark = pytest.mark.skipif(bool(probes.missing("step.graph")), reason="this Ultralytics has another forward pass")


def test_a_training_is_the_same_with_graphs(made_data, tmp_path, events, monkeypatch):
    models, found = [], []

    def see(trainer):
        models.append(plain_model(trainer.model))
        known = network.of(models[-1])
        found.append(0 if known is None else known.recorded)

    def train(name, graph):
        rocm = {"conv": {"engine": "gemm", "devices": ["cpu"]}, "step": {"graph": graph}}
        rocm["report"] = {"telemetry": False}  # it would watch steps, which are not recorded then
        yolo = load_model(small_model())
        losses = []
        yolo.add_callback("on_train_batch_end", lambda trainer: losses.append(float(trainer.loss.detach().sum())))
        yolo.add_callback("on_train_batch_end", see)
        handle = yolo_rocm.register(yolo, "cpu", rocm)
        # Two steps for each of the optimizer's.
        yolo.train(data=str(made_data()), project=str(tmp_path), name=name, nbs=4, **QUICK)
        handle.remove()
        assert json.loads((tmp_path / name / "rocm.json").read_text())["graphs"] == events.of("graph.choice")
        return losses

    plain = train("plain", "auto")
    assert events.of("graph.choice") == []  # nobody has asked for what a CPU has not
    assert found == [0] * 4
    cpu_has_graphs(monkeypatch, StandIn)
    found.clear()
    assert train("graphed", "on") == plain
    (line,) = events.of("graph.choice")
    assert line.startswith("device graph on for 2x3x32x32: ")
    assert found == [0, 0, 1, 1]  # the first batch names layers, the second is seen
    assert network.of(models[-1]) is None


def of(mode, engine="auto"):
    """Return the graphs of a preset."""
    preset = Preset(conv={"engine": engine}, step={"graph": mode})
    return Graphs(SimpleNamespace(settings=SimpleNamespace(preset=preset)))


def trainer(model=None, **more):
    """Return a stand-in for a trainer."""
    model = torch.nn.Linear(1, 1) if model is None else model
    return SimpleNamespace(**{"model": model, "device": torch.device("cpu"), "batch_size": 4, **more})


def test_a_smaller_batch_after_a_lack_of_memory_lets_go_of_the_graphs_of_the_larger(monkeypatch):
    monkeypatch.setattr(recorder, "DEVICES", ["cpu"])
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    compiled = torch.nn.Module()
    compiled._orig_mod = torch.nn.Linear(1, 1)
    graphs, asked, forgotten = of("on"), trainer(), []
    graphs.begin(trainer(compiled))
    assert graphs.said == ["device graph off: the model is compiled"]
    graphs.begin(asked)
    monkeypatch.setattr(network.of(asked.model), "forget", lambda: forgotten.append(asked.batch_size))
    graphs.epoch_starts(asked)
    asked.batch_size = 2
    graphs.epoch_starts(asked)
    graphs.epoch_starts(asked)
    assert forgotten == [2]
    graphs.close()
    graphs.close()
    assert network.of(asked.model) is None
