"""The section `predict` in a session: when blocks and networks are ours, and when they are let go."""

from __future__ import annotations

import csv
import itertools
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint
from ultralytics import YOLO
from ultralytics.nn.modules.conv import Conv
from ultralytics.nn.tasks import BaseModel

import yolo_rocm
from yolo_rocm.session.run import Run
from yolo_rocm.session.session import Session
from yolo_rocm.ultralytics_hooks import models, probes

from ..small_model import small_model
from ..tables import each_row

pytestmark = pytest.mark.skipif(
    bool(probes.missing(probes.INFERENCE_BLOCKS)), reason="this Ultralytics has other blocks"
)
ON_CPU = {"devices": ["cpu"], "engine": "gemm"}
FUSED = {"fuse": "on"}


def patched() -> tuple[bool, bool]:
    return "__call__" in vars(Conv), hasattr(BaseModel._predict_once, "__wrapped__")


@each_row(
    ("rocm", "on"),
    [
        ({"conv": ON_CPU, "predict": FUSED}, True),
        ({"conv": ON_CPU}, True),
        ({"conv": ON_CPU, "predict": {"fuse": "off"}}, False),
        ({"conv": {"devices": ["cpu"], "engine": "vendor"}, "predict": FUSED}, False),
    ],
)
def test_blocks_and_networks_are_ours_where_the_preset_says_so(rocm, on):
    session = Session("cpu", rocm)
    with Run(session, {}).applied():
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
    assert served(registration._session) >= 60
    assert set(registration.report.engines()) == {"gemm"}
    registration.remove()
    yolo.predict(image, **arguments)
    assert patched() == (False, False)


def test_nothing_is_recorded_while_a_training_goes_on(monkeypatch):
    session = Session("cpu", {"conv": ON_CPU, "predict": FUSED})
    seen = []
    monkeypatch.setattr(
        type(session.inference), "_networks", property(lambda self: lambda model, run, x: seen.append(x) or run(x))
    )
    x = torch.ones(1, 3, 32, 32)
    network = a_network()

    def computed(*trainings):
        run = Run(session, {})
        run.trainings.extend(trainings)
        with torch.no_grad(), run.at_work():
            network(x)
        return len(seen)

    with Run(session, {}).applied():
        assert computed(SimpleNamespace(is_open=True)) == 0
        with torch.no_grad():
            network(x)
        assert seen == []  # no run is going on
        other = Session("cpu", {"conv": {"devices": ["cpu"], "engine": "aten"}})
        with Run(other, {}).applied(), Run(session, {}).at_work(), Run(other, {}).at_work(), torch.no_grad():
            network(x)
        assert seen == []  # of sessions inside of each other the newest decides
        assert set(other.report.engines()) == {"aten"}
        assert computed() == 1


def a_network():
    torch.manual_seed(0)
    return YOLO(small_model()).model.eval().requires_grad_(False)


def served(session) -> int:
    return sum(each.forward_calls for each in session.inference.report.served.values())


def test_what_a_user_computes_beside_a_run_is_torchs_and_the_plans_of_training(made_data):
    """Between two items of a stream, in another thread, and in a callback a model that is trained."""
    yolo, own, frozen = YOLO(small_model()), YOLO(small_model()).model.eval(), a_network()
    plain = torch.nn.Conv2d(3, 4, 3).requires_grad_(False)
    registration = yolo_rocm.register(yolo, "cpu", {"conv": ON_CPU})
    session, x = registration._session, torch.rand(1, 3, 32, 32)
    counts = []

    def compute(model=frozen):
        before = served(session)
        with torch.no_grad():
            model(x)
            plain(x)
        counts.append(served(session) - before)

    def compute_in_a_thread(*_):
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()

    yolo.add_callback("on_predict_batch_start", lambda _: compute(own))
    yolo.add_callback("on_predict_batch_end", compute_in_a_thread)
    images = [np.zeros((32, 32, 3), np.uint8)] * 3
    for _ in yolo.predict(images, stream=True, imgsz=32, device="cpu", verbose=False):
        compute()
    assert served(session) > 0
    assert set(counts) == {0}
    assert len(counts) > 4
    registration.remove()


@pytest.mark.parametrize("how", ["compiled", "checkpoint"])
def test_a_training_whose_gradients_are_off_inside_has_the_plans_of_training(how):
    """AOTAutograd and reentrant checkpoints compute forward passes in functions of autograd."""
    if how == "compiled" and not hasattr(torch, "compile"):
        pytest.skip("torch < 2 has no torch.compile")
    session, x = Session("cpu", {"conv": ON_CPU}), torch.rand(1, 3, 32, 32)
    network = YOLO(small_model()).model.eval()
    network.model = network.model[:2]  # the blocks before anything is put together
    network.save = []
    run = torch.compile(network, backend="aot_eager") if how == "compiled" else network
    whole = Run(session, {})
    with whole.applied(), whole.at_work():
        for _ in range(2):
            own = x.clone().requires_grad_()
            y = run(own) if how == "compiled" else checkpoint(run, own, use_reentrant=True)
            y.square().mean().backward()
    assert served(session) == 0
    calls = [(each.forward_calls, each.backward_calls) for each in session.report.served.values()]
    assert calls
    assert {backward for _, backward in calls} == {2}


@pytest.mark.once
def test_validations_of_a_training_compute_with_the_weights_of_their_epoch(made_data, tmp_path, monkeypatch):
    """Foreach functions of torch count no change on a GPU, and newer Ultralytics averages weights by one."""

    def silent(averages, weights, share):
        for average, weight in zip(averages, weights, strict=True):
            average.data.lerp_(weight.data, share)

    monkeypatch.setattr(torch, "_foreach_lerp_", silent, raising=False)
    data, found = str(made_data()), {}
    arguments = {"epochs": 3, "imgsz": 32, "batch": 4, "nbs": 4, "plots": False, "device": "cpu", "workers": 0}
    arguments |= {"optimizer": "SGD", "lr0": 0.05, "warmup_epochs": 0, "seed": 0, "verbose": False}
    for fuse in ("off", "on"):
        yolo = models.load_model(small_model())
        registration = yolo_rocm.register(yolo, "cpu", {"conv": ON_CPU, "predict": {"fuse": fuse}})
        yolo.train(data=data, project=str(tmp_path), name=fuse, **arguments)
        assert fuse == "off" or served(registration._session) > 0
        registration.remove()
        with open(tmp_path / fuse / "results.csv", newline="") as file:
            rows = [{key.strip(): value for key, value in row.items()} for row in csv.DictReader(file)]
        found[fuse] = [[float(row[f"val/{part}_loss"]) for part in ("box", "cls", "dfl")] for row in rows]
    assert len(found["on"]) == 3
    for before, after in itertools.pairwise(found["off"]):
        assert after != pytest.approx(before, rel=3e-3)
    for ours, stock in zip(found["on"], found["off"], strict=True):
        assert ours == pytest.approx(stock, rel=3e-4)
