"""The section `predict` in a session: when blocks and networks are ours, and when they are let go."""

from __future__ import annotations

import csv
import itertools

import numpy as np
import pytest
import torch
from ultralytics import YOLO
from ultralytics.nn.modules.conv import Conv
from ultralytics.nn.tasks import BaseModel

import yolo_rocm
from yolo_rocm import ultralytics_hooks as hooks
from yolo_rocm.graphs import inference
from yolo_rocm.session.session import Session

from ..small_model import small_model
from ..tables import each_row

pytestmark = pytest.mark.skipif(bool(hooks.missing(hooks.INFERENCE_BLOCKS)), reason="this Ultralytics has other blocks")
ON_CPU = {"devices": ["cpu"], "engine": "gemm"}
FUSED = {"fuse": "on"}


def patched() -> tuple[bool, bool]:
    return "__call__" in vars(Conv), hasattr(BaseModel._predict_once, "__wrapped__")


@each_row(
    ("rocm", "on"),
    [
        ({"conv": ON_CPU, "predict": FUSED}, True),
        ({"conv": ON_CPU, "predict": {"fuse": True}}, True),  # as YAML reads `on`
        ({"conv": ON_CPU}, True),
        ({"conv": ON_CPU, "predict": {"fuse": "off"}}, False),
        ({"conv": {"devices": ["cpu"], "engine": "vendor"}, "predict": FUSED}, False),
        ({"conv": {"devices": ["cpu"], "engine": "aten+vendor"}, "predict": FUSED}, False),
        ({"conv": {"devices": ["cpu"], "engine": "auto"}, "predict": FUSED}, True),
    ],
)
def test_blocks_and_networks_are_ours_where_the_preset_says_so(rocm, on):
    session = Session("cpu", rocm)
    with session.active():
        assert patched() == (on, on)
    assert patched() == (False, False)


def test_a_prediction_goes_through_fused_blocks_and_equals_stock():
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    torch.manual_seed(0)
    yolo = YOLO("yolov8n.yaml")
    arguments = {"imgsz": 64, "conf": 1e-4, "device": "cpu", "verbose": False}
    stock = yolo.predict(image, **arguments)[0].boxes.data
    registration = yolo_rocm.register(yolo, "cpu", {"conv": ON_CPU, "predict": FUSED})
    ours = yolo.predict(image, **arguments)[0].boxes.data  # of a model that was fused before
    assert torch.allclose(ours, stock, atol=1e-3)
    report = registration._session.inference.report
    assert sum(served.forward_calls for served in report.served.values()) >= 60
    assert set(registration.report.engines()) == {"gemm"}
    assert "conv 3x3 3->16 stride 2x2" in report.table()
    registration.remove()
    yolo.predict(image, **arguments)
    assert patched() == (False, False)


def test_networks_are_told_what_the_preset_wants_and_let_go_with_the_registration(monkeypatch):
    yolo = YOLO("yolov8n.yaml")
    registration = yolo_rocm.register(
        yolo, "cpu", {"conv": ON_CPU, "predict": {**FUSED, "graph": "on", "layout": "nchw"}}
    )
    networks = registration._session.inference._networks
    assert networks.wanted == inference.Wanted("on", "nchw")
    forgotten = []
    monkeypatch.setattr(networks, "forget", lambda: forgotten.append(1))
    registration.remove()
    assert forgotten == [1]


def test_nothing_is_recorded_while_a_training_goes_on(monkeypatch):
    session = Session("cpu", {"conv": ON_CPU, "predict": FUSED})
    seen = []
    monkeypatch.setattr(
        type(session.inference), "_networks", property(lambda self: lambda model, run, x: seen.append(x) or run(x))
    )
    model, trainer, x = torch.nn.Identity(), torch.nn.Identity(), torch.ones(())

    def computed():
        return session.inference._compute(model, lambda x: x + 1, x)

    with session.active():
        session.trainings[trainer] = object()
        assert computed() == 2
        assert seen == []
        del session.trainings[trainer]
        with Session("cpu", {"conv": {"devices": ["cpu"], "engine": "aten"}}).active():
            assert computed() == 2
            assert seen == []
        assert computed() == 2
        assert len(seen) == 1


def test_what_is_recorded_goes_with_the_weights_that_it_reads(monkeypatch):
    """A recorded pass reads folded weights where they were; nobody else holds them."""
    session = Session("cpu", {"conv": ON_CPU, "predict": {"fuse": "on", "graph": "on"}})
    with session.active():
        networks, weights = session.inference._networks, session.inference._patch.weights
    order = []
    monkeypatch.setattr(networks, "forget", lambda: order.append("recorded"))
    monkeypatch.setattr(weights, "forget", lambda: order.append("weights"))
    session.inference.weights_change()
    assert order == ["recorded", "weights"]


@pytest.mark.once
def test_validations_of_a_training_compute_with_the_weights_of_their_epoch(made_data, tmp_path, monkeypatch):
    """Foreach functions of torch count no change on a GPU, and newer Ultralytics averages weights by one."""

    def silent(averages, weights, share):
        for average, weight in zip(averages, weights, strict=True):
            average.data.lerp_(weight.data, share)

    monkeypatch.setattr(torch, "_foreach_lerp_", silent, raising=False)
    data, found = str(made_data()), {}
    arguments = {"epochs": 4, "imgsz": 64, "batch": 4, "nbs": 4, "plots": False, "device": "cpu", "workers": 0}
    arguments |= {"optimizer": "SGD", "lr0": 0.05, "warmup_epochs": 0, "seed": 0, "verbose": False}
    for fuse in ("off", "on"):
        yolo = hooks.load_model(small_model())
        registration = yolo_rocm.register(yolo, "cpu", {"conv": ON_CPU, "predict": {"fuse": fuse}})
        yolo.train(data=data, project=str(tmp_path), name=fuse, **arguments)
        registration.remove()
        with open(tmp_path / fuse / "results.csv", newline="") as file:
            rows = [{key.strip(): value for key, value in row.items()} for row in csv.DictReader(file)]
        found[fuse] = [[float(row[f"val/{part}_loss"]) for part in ("box", "cls", "dfl")] for row in rows]
    assert len(found["on"]) == 4
    for before, after in itertools.pairwise(found["off"]):
        assert after != pytest.approx(before, rel=3e-3)
    for ours, stock in zip(found["on"], found["off"], strict=True):
        assert ours == pytest.approx(stock, rel=3e-4)


def test_of_sessions_inside_of_each_other_the_newest_decides():
    block, x = Conv(3, 8, 3).eval(), torch.rand(1, 3, 8, 8)
    outer, inner = (
        Session("cpu", {"conv": ON_CPU, "predict": FUSED}),
        Session("cpu", {"conv": {"devices": ["cpu"], "engine": "aten"}}),
    )
    with torch.no_grad(), outer.active():
        with inner.active():
            block(x)
        assert not outer.inference.report.served
        assert set(inner.report.engines()) == {"aten"}
        block(x)
        assert outer.inference.report.served
