"""BatchNorm of whole trainings: as one with its activation, where BatchNorm's native kernels are broken too."""

from __future__ import annotations

import json
import pickletools
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from torch import nn

import yolo_rocm
from yolo_rocm.blocks.recomputed import RecomputedBlock
from yolo_rocm.norm import recipes
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.seam import installed
from yolo_rocm.session.convolutions import Convolutions
from yolo_rocm.ultralytics_hooks import models, train_steps
from yolo_rocm.ultralytics_hooks.fused_blocks import fused_blocks

from ..short_life import PLAIN
from ..sick_vendor import MESSAGE, sick, sick_norm
from ..small_model import small_model
from .test_training import OURS, QUICK, an_image, losses

MODELS = ("yolov8n.yaml", "yolo11n.yaml", "yolo26n.yaml")


@contextmanager
def fused():
    with installed(NormPatch(("cpu",), NormPlanner("gemm", remember=False))) as patch, fused_blocks():
        yield patch


@pytest.fixture
def recomputed(monkeypatch):
    """Keep recipes of the smallest activations too, and list those that are computed once more."""
    found, noted = [], recipes.noted
    monkeypatch.setattr(recipes, "noted", lambda *_: noted(0, 0))
    made = RecomputedBlock._made_again
    monkeypatch.setattr(RecomputedBlock, "_made_again", lambda self: found.append(type(self)) or made(self))
    return found


@pytest.mark.once
def test_stock_dies_of_batch_norm_alone(made_data, tmp_path):
    from ultralytics import YOLO

    with sick_norm(), pytest.raises(RuntimeError, match=MESSAGE):
        YOLO(small_model()).train(data=str(made_data()), project=str(tmp_path), **QUICK)


def test_a_whole_run_with_sick_norm_leaves_a_plain_checkpoint(made_data, tmp_path, monkeypatch, recomputed):
    """Train with its EMA, validate between epochs, close the mosaic, evaluate the fused best.pt; then open it plain.

    In lean memory, which must leave nothing behind either.
    """
    from ultralytics import YOLO

    calls = []
    forward = nn.BatchNorm2d.forward
    monkeypatch.setattr(nn.BatchNorm2d, "forward", lambda self, x: calls.append(self.training) or forward(self, x))
    options = {**QUICK, "close_mosaic": 1, "project": str(tmp_path), "name": "run"}
    with sick():
        rocm = {**OURS, "step": {"memory": "lean"}}
        yolo_rocm.train(small_model(), data=made_data(), preset="cpu", rocm=rocm, **options)
        assert recomputed
        # Training never calls a BatchNorm by itself. The EMA's validation does.
        assert set(calls) == {False}
        best, image = str(tmp_path / "run" / "weights" / "best.pt"), an_image(made_data())
        yolo = YOLO(best)
        yolo_rocm.register(yolo, "cpu", OURS)
        options = {"imgsz": 64, "device": "cpu", "verbose": False, "conf": 0.00001}
        (ours,) = yolo.predict(image, **options)
    norms = {name for name, layer in yolo.model.named_modules() if isinstance(layer, nn.BatchNorm2d)}
    assert len(norms) > 10
    command = [sys.executable, "-c", PLAIN, best, image, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plain = torch.tensor(json.loads(done.stdout.partition("BOXES ")[2]))
    assert plain.numel() > 0
    torch.testing.assert_close(ours.boxes.data, plain, rtol=1e-4, atol=1e-4)
    for file in (tmp_path / "run" / "weights").glob("*.pt"):
        with zipfile.ZipFile(file) as parts:
            (pickled,) = [name for name in parts.namelist() if name.endswith("data.pkl")]
            named = {arg for op, arg, _ in pickletools.genops(parts.read(pickled)) if op.name == "GLOBAL"}
            # Not the bytes: Ultralytics writes the folder of a clone into them, which may have our name.
            assert named
            assert not [each for each in named if each.startswith("yolo_rocm")]
    facts = json.loads((tmp_path / "run" / "rocm.json").read_text())["normalisations"]
    assert {row["layer"] for row in facts["layers"]} == norms
    assert {row["engine"] for row in facts["layers"]} == {"gemm"}
    assert any("silu" in problem["problem"] and problem["backward_calls"] for problem in facts["problems"])


def test_losses_follow_stock_where_everything_is_sick(made_data, tmp_path):
    options = {"imgsz": 32, "model": small_model(), "epochs": 4}  # as many as there are steps for
    stock = losses(made_data(), tmp_path, 8, patched=False, **options)
    ours = losses(made_data(), tmp_path, 8, patched=True, under=sick, **options)
    assert len(stock) == 8
    assert ours == pytest.approx(stock, rel=1e-3)


@pytest.mark.once
def test_what_was_measured_is_said_and_the_summary_names_both(made_data, tmp_path, log, monkeypatch):
    monkeypatch.setattr(Convolutions, "tune", lambda self: None)  # it takes longer than all the rest
    rocm = {**OURS, "conv": {**OURS["conv"], "tune": "on"}}
    options = {**QUICK, "epochs": 1, "imgsz": 32, "val": False, "save": False}
    yolo_rocm.train(small_model(), data=made_data(), preset="cpu", rocm=rocm, project=str(tmp_path), **options)
    layers = list(models.load_model(small_model()).model.modules())
    convolutions, norms = (sum(isinstance(layer, kind) for layer in layers) for kind in (nn.Conv2d, nn.BatchNorm2d))
    (line,) = [line for line in log.text.splitlines() if f"{convolutions} convolution layers" in line]
    assert f"{norms} BatchNorm layers: {norms} gemm" in line
    assert len([line for line in log.text.splitlines() if " normalisations, kept" in line]) == 1


@cache
def batch() -> dict[str, torch.Tensor]:
    return train_steps.made_batch(model("yolov8n.yaml"), 2, 64, torch.Generator().manual_seed(0))


def model(name: str) -> nn.Module:
    torch.manual_seed(0)
    return train_steps.detector(name)


def test_lean_trains_with_the_same_numbers_to_the_last_bit(made_data, tmp_path, monkeypatch, recomputed):
    found = {}
    for memory in ("full", "lean"):
        monkeypatch.setitem(OURS, "step", {"memory": memory})
        found[memory] = losses(made_data(), tmp_path, 4, patched=True, model=small_model(), imgsz=32, epochs=2)
        assert (len(recomputed) > 20) if memory == "lean" else not recomputed
    assert found["lean"] == found["full"]


def kept_bytes(module: nn.Module) -> int:
    """Return how much a training step keeps for backward in addition to the model: each storage counts once."""
    own = {tensor.data_ptr() for tensor in (*module.parameters(), *module.buffers())}
    images, found, alive = batch()["img"], {}, []

    def pack(tensor):
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # so that no storage gets the address of another
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(images)
    statistics = 0 if not _served_now() else 8 * sum(m.num_features for m in module.modules() if hasattr(m, "momentum"))
    return sum(found.values()) + statistics


def _served_now() -> bool:
    from ultralytics.nn.modules.conv import Conv

    return hasattr(Conv.forward, "__wrapped__")


@pytest.mark.parametrize("name", MODELS)
def test_less_is_kept_for_backward(name):
    try:
        module = model(name)
    except FileNotFoundError:
        pytest.skip(f"this Ultralytics has no {name}")
    stock = kept_bytes(module)
    with fused():
        ours = kept_bytes(module)
    assert 0.5 * stock < ours <= 0.73 * stock, ours / stock  # statistics count with images this small
