"""BatchNorm of whole trainings: as one with its activation, where BatchNorm's native kernels are broken too."""

from __future__ import annotations

import json
import pickletools
import subprocess
import sys
import zipfile

import pytest
import torch
from torch import nn

import yolo_rocm
from yolo_rocm.norm import recipes
from yolo_rocm.norm.keeping import Activation

from ..short_life import PLAIN
from ..sick_vendor import sick
from ..small_model import small_model
from .test_training import OURS, QUICK, an_image, losses


@pytest.fixture
def recomputed(monkeypatch):
    """Keep recipes of the smallest activations too, and list those that are computed once more."""
    found, noted = [], recipes.noted
    monkeypatch.setattr(recipes, "noted", lambda *_: noted(0, 0))
    made = Activation._make
    monkeypatch.setattr(Activation, "_make", lambda self: found.append(type(self)) or made(self))
    return found


def test_a_whole_run_with_sick_norm_leaves_a_plain_checkpoint(made_data, tmp_path, monkeypatch, recomputed):
    """Train with its EMA, validate between epochs, close the mosaic, evaluate the fused best.pt; then open it plain.

    In lean memory, which must leave nothing behind either.
    """
    from ultralytics import YOLO

    calls = []
    forward = nn.BatchNorm2d.forward
    monkeypatch.setattr(nn.BatchNorm2d, "forward", lambda self, x: calls.append(self.training) or forward(self, x))
    options = {**QUICK, "imgsz": 32, "close_mosaic": 1, "project": str(tmp_path), "name": "run"}
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


def test_lean_trains_with_the_same_numbers_to_the_last_bit(made_data, tmp_path, monkeypatch, recomputed):
    found = {}
    for memory in ("full", "lean"):
        monkeypatch.setitem(OURS, "step", {"memory": memory})
        found[memory] = losses(made_data(), tmp_path, 4, patched=True, model=small_model(), imgsz=32, epochs=2)
        assert (len(recomputed) > 20) if memory == "lean" else not recomputed
    assert found["lean"] == found["full"]
