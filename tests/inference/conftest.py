"""Weights that find something without a training, and images of different sizes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from yolo_rocm.inference import chooser
from yolo_rocm.inference.agreement import Agreement
from yolo_rocm.inference.measure import Measured
from yolo_rocm.inference.ways import BASE, Way

from .test_agreement import liven


@pytest.fixture(scope="session")
def busy_weights(tmp_path_factory) -> Path:
    """A detector that reports different scores at different places."""
    import torch
    from ultralytics import YOLO

    torch.manual_seed(0)
    yolo, file = YOLO("yolov8n.yaml"), tmp_path_factory.mktemp("busy") / "busy.pt"
    liven(yolo.model)
    yolo.save(file)
    return file


@pytest.fixture
def weights(busy_weights, tmp_path) -> Path:
    """The same in a folder of its own, where exports may be left."""
    file = tmp_path / "weights" / "busy.pt"
    file.parent.mkdir()
    file.write_bytes(busy_weights.read_bytes())
    return file


@pytest.fixture(scope="session")
def exported_once(busy_weights) -> Path:
    """The folder of the weights with their TorchScript form in it."""
    from yolo_rocm.inference.exported import exported

    exported(busy_weights, "torchscript", {"imgsz": 64})
    return busy_weights.parent


@pytest.fixture
def ready_weights(exported_once, tmp_path) -> Path:
    """Weights that were exported to TorchScript before, in a folder of their own."""
    shutil.copytree(exported_once, tmp_path / "ready")
    return tmp_path / "ready" / "busy.pt"


@pytest.fixture(scope="session")
def photos(tmp_path_factory) -> Path:
    """Images of two sizes, one that cannot be read, and a file that is none."""
    import cv2

    folder = tmp_path_factory.mktemp("photos")
    for seed in range(4):
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
    asked = []

    def survey(weights, task, images, ways, **options):
        asked.append((task, len(images), list(ways)))
        right = Agreement(1.0, 9, 0.0)
        slow = Measured(BASE, images_per_s=1.0, median_ms=9.0, agreement=right)
        return [slow, Measured(Way("torchscript"), images_per_s=2.0, median_ms=4.5, agreement=right)]

    monkeypatch.setattr(chooser, "survey", survey)
    monkeypatch.setattr(chooser, "candidates", lambda *args: [BASE, Way("torchscript")])
    return asked


@pytest.fixture
def lines(events) -> list[str]:
    """What is said in the log."""
    return events.lines
