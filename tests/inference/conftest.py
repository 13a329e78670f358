"""Weights that find something without a training, images of different sizes, and a stand-in for measurements."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from yolo_rocm.hardware import Gpu
from yolo_rocm.inference import chooser
from yolo_rocm.inference.measure import Measured
from yolo_rocm.inference.ways import BASE, Way

from ..small_model import small_model

QUICK = {"imgsz": 64, "device": "cpu", "verbose": False, "conf": 0.05, "max_det": 20}


def liven(model) -> None:
    """Make a new model report different scores at different places, without a training."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.9
    with torch.no_grad():
        model.train()(torch.rand(4, 3, 64, 64))
        head = model.model[-1]
        for part in ("cv3", "one2one_cv3"):
            for scores in getattr(head, part, ()):
                scores[-1].weight.mul_(10)
                scores[-1].bias.fill_(-1)
        if hasattr(head, "linear"):
            head.linear.weight.mul_(20)
    model.eval()


def machine(*packages, gfx=None, system="linux"):
    """Return a machine with some packages, and a GPU."""
    gpus = () if gfx is None else (Gpu("amd", gfx=gfx),)
    version = {name: "1" for name in packages}.get
    return SimpleNamespace(system=system, gpus=gpus, packages=SimpleNamespace(version=version))


@pytest.fixture(scope="session")
def busy_weights(tmp_path_factory) -> Path:
    """A detector that reports different scores at different places."""
    import torch
    from ultralytics import YOLO

    torch.manual_seed(0)
    yolo, file = YOLO(small_model()), tmp_path_factory.mktemp("busy") / "busy.pt"
    liven(yolo.model)
    yolo.save(file)
    return file


@pytest.fixture(scope="session")
def exported_once(busy_weights) -> Path:
    """The folder of the weights with their TorchScript form in it."""
    from yolo_rocm.inference.exported import exported

    exported(busy_weights, "torchscript", {"imgsz": 64})
    return busy_weights.parent


@pytest.fixture
def weights(exported_once, tmp_path) -> Path:
    """Weights that were exported to TorchScript before, in a folder of their own."""
    shutil.copytree(exported_once, tmp_path / "weights")
    return tmp_path / "weights" / "busy.pt"


@pytest.fixture(scope="session")
def photos(tmp_path_factory) -> Path:
    """Images of two sizes, one that cannot be read, and a file that is none."""
    import cv2

    folder = tmp_path_factory.mktemp("photos")
    for seed in range(3):
        draw = np.random.default_rng(seed)
        small = draw.integers(0, 255, (8, 6 + 2 * (seed % 2), 3), dtype=np.uint8)
        cv2.imwrite(str(folder / f"{seed}.png"), cv2.resize(small, None, fx=10, fy=10))
    (folder / "broken.jpg").write_bytes(b"no image")
    (folder / "notes.txt").write_text("none")
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """The file of remembered choices, in a folder of its own."""
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "predict.json"


@pytest.fixture
def surveys(monkeypatch) -> list:
    """Measurements by a stand-in: TorchScript is fastest and agrees; a list of what was asked."""
    calls = []

    def survey(weights, task, images, ways, **options):
        calls.append((task, len(images), list(ways)))
        torch = Measured(BASE, images_per_s=1.0, median_ms=9.0, agreement=1.0, objects=9)
        return [torch, Measured(Way("torchscript"), images_per_s=2.0, median_ms=4.5, agreement=1.0, objects=9)]

    monkeypatch.setattr(chooser, "survey", survey)
    monkeypatch.setattr(chooser, "candidates", lambda *args: [BASE, Way("torchscript")])
    return calls


def assert_same(got, expected):
    """Compare the results of two predictions."""
    import torch

    got = list(got)
    assert len(got) == len(expected) > 0
    assert sum(len(result) for result in expected) > 0
    for mine, theirs in zip(got, expected, strict=True):
        assert (type(mine), mine.path) == (type(theirs), theirs.path)
        torch.testing.assert_close(mine.boxes.data, theirs.boxes.data, rtol=1e-3, atol=1e-2)
