"""The modes beside training, held against stock Ultralytics: validation, prediction, tracking."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import yolo_rocm
from yolo_rocm.conv import seam

from ..made_data import make_data
from ..sick_vendor import sick_vendor
from ..small_model import small_model
from .test_training import OURS, an_image

QUICK = {"imgsz": 64, "device": "cpu", "verbose": False}


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    """A detector whose boxes and scores differ from place to place, without a training."""
    from ultralytics import YOLO

    torch.manual_seed(0)
    yolo, file = YOLO("yolov8n.yaml"), tmp_path_factory.mktemp("weights") / "busy.pt"
    for module in yolo.model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.9  # statistics of one batch, instead of activations that fade from layer to layer
    with torch.no_grad():
        yolo.model.train()(torch.rand(4, 3, 64, 64))
        for boxes, scores in zip(yolo.model.model[-1].cv2, yolo.model.model[-1].cv3, strict=True):
            boxes[-1].weight.mul_(10)
            scores[-1].weight.mul_(10)
            scores[-1].bias.fill_(-1)
    yolo.save(file)
    return file


@pytest.fixture(scope="module")
def video(made_data, tmp_path_factory) -> str:
    import cv2

    frame = cv2.imread(an_image(made_data()))
    file = tmp_path_factory.mktemp("video") / "clip.avi"
    writer = cv2.VideoWriter(str(file), cv2.VideoWriter_fourcc(*"MJPG"), 10, (frame.shape[1], frame.shape[0]))
    for shift in range(4):
        writer.write(np.roll(frame, 2 * shift, axis=1))
    writer.release()
    return str(file)


@pytest.fixture
def stock(weights):
    from ultralytics import YOLO

    return YOLO(weights)


@pytest.fixture
def ours(weights):
    from ultralytics import YOLO

    yolo = YOLO(weights)
    yolo_rocm.register(yolo, "cpu", OURS)
    return yolo


def boxes(results) -> list[torch.Tensor]:
    return [result.boxes.data for result in results]


def assert_same(got, wanted) -> None:
    assert len(got) == len(wanted)
    assert sum(len(frame) for frame in wanted) > 0
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "of a training"])
def test_validation_alone_takes_no_sample_in_the_place_of_one_that_is_gone(weights, tmp_path, alone, log):
    """Its metrics would be those of other images; a training is not ended by one, and names it."""
    from ultralytics import YOLO

    data = make_data(tmp_path / "data", task="detect", images=8, size=64)
    lost = next((tmp_path / "data" / "images" / "val").iterdir())

    def lose(_):
        lost.unlink(missing_ok=True)

    yolo = YOLO(weights if alone else small_model())
    yolo_rocm.register(yolo, "cpu")
    yolo.add_callback("on_val_start", lose)
    given = {"data": str(data), "imgsz": 32, "workers": 0, "device": "cpu", "plots": False, "verbose": False}
    if alone:
        with pytest.raises(FileNotFoundError, match=lost.name):
            yolo.val(**given)
    else:
        yolo.train(epochs=1, project=str(tmp_path), **given)
        assert "cannot be read, another sample took its place" in log.text


def test_validation_has_the_metrics_of_stock(stock, ours, made_data, tmp_path):
    options = {"data": str(made_data()), "plots": False, "project": str(tmp_path), **QUICK}
    wanted = stock.val(**options).results_dict
    with sick_vendor():
        got = ours.val(**options).results_dict
    assert got == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("kind", ["predict", "stream", "track"])
def test_predictions_and_tracks_are_those_of_stock(kind, stock, ours, video):
    if kind == "track" and importlib.util.find_spec("lap") is None:
        pytest.skip("tracking needs the package lap")
    mode = "track" if kind == "track" else "predict"
    options = {"conf": 0.3, "stream": kind == "stream", **QUICK}
    wanted = boxes(getattr(stock, mode)(video, **options))
    with sick_vendor():
        got = boxes(getattr(ours, mode)(video, **options))
    assert seam.active_devices() == ()
    assert_same(got, wanted)
    if kind == "track":
        assert any(frame.shape[1] == 7 for frame in got if len(frame))  # an identity beside box, score and class
