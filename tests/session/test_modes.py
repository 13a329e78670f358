"""The modes beside training, held against stock Ultralytics: validation, prediction, tracking, export, benchmark."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import yolo_rocm
from yolo_rocm.conv import seam

from ..made_data import make_data
from ..sick_vendor import MESSAGE, sick_vendor
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

    yolo = YOLO(weights)
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


@pytest.mark.parametrize("kind", ["image", "folder", "array", "video", "stream"])
def test_prediction_has_the_boxes_of_stock(kind, stock, ours, made_data, video):
    import cv2

    image = an_image(made_data())
    source = {"image": image, "folder": str(Path(image).parent), "array": cv2.imread(image)}.get(kind, video)
    options = {"conf": 0.3, "stream": kind == "stream", **QUICK}
    wanted = boxes(stock.predict(source, **options))
    with sick_vendor():
        got = boxes(ours.predict(source, **options))
    assert seam.active_devices() == ()
    assert_same(got, wanted)


@pytest.mark.skipif(importlib.util.find_spec("lap") is None, reason="tracking needs the package lap")
def test_tracking_gives_the_tracks_of_stock(stock, ours, video):
    options = {"conf": 0.3, "persist": True, **QUICK}
    wanted = boxes(stock.track(video, **options))
    with sick_vendor():
        got = boxes(ours.track(video, **options))
    assert_same(got, wanted)
    assert any(frame.shape[1] == 7 for frame in got if len(frame))  # an identity beside box, score and class


def test_embedding_equals_stock(stock, ours, made_data):
    wanted = stock.embed(an_image(made_data()), **QUICK)
    with sick_vendor():
        got = ours.embed(an_image(made_data()), **QUICK)
    torch.testing.assert_close(got[0], wanted[0], rtol=1e-4, atol=1e-5)


def convolutions_of_torchscript(file: Path) -> int:
    graph = torch.jit.load(str(file)).inlined_graph
    return sum(node.kind() == "aten::_convolution" for node in graph.nodes())


def convolutions_of_onnx(file: Path) -> int:
    onnx = pytest.importorskip("onnx")
    return sum(node.op_type in ("Conv", "ConvTranspose") for node in onnx.load(str(file)).graph.node)


@pytest.mark.parametrize("kind", ["torchscript", pytest.param("onnx", marks=pytest.mark.deep)])
def test_an_export_holds_ordinary_convolutions_and_equals_that_of_stock(kind, stock, ours, tmp_path):
    """The vendor is healthy here: what is exported is a graph of its operators."""
    if kind == "onnx":
        pytest.importorskip("onnx")
    count = convolutions_of_onnx if kind == "onnx" else convolutions_of_torchscript
    options = {"format": kind, "imgsz": 64, "device": "cpu", **({"simplify": False} if kind == "onnx" else {})}
    # Both write beside the weights, under the same name.
    theirs = Path(stock.export(**options)).rename(tmp_path / f"stock.{kind}")
    mine = Path(ours.export(**options)).rename(tmp_path / f"ours.{kind}")
    assert count(mine) == count(theirs) > 60
    if kind == "torchscript":
        image = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
        got, wanted = (torch.jit.load(str(file))(image) for file in (mine, theirs))
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    else:
        import onnx

        got, wanted = (onnx.load(str(file)).graph for file in (mine, theirs))
        assert [node.op_type for node in got.node] == [node.op_type for node in wanted.node]
        assert [each.raw_data for each in got.initializer] == [each.raw_data for each in wanted.initializer]


def test_a_benchmark_runs_under_the_preset(ours, made_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"data": str(made_data()), "imgsz": 64, "format": "torchscript", "device": "cpu"}
    from ultralytics.utils import benchmarks

    original, seen = benchmarks.benchmark, []

    def watched(*args, **kwargs):
        seen.append(seam.active_devices())
        return original(*args, **kwargs)

    monkeypatch.setattr(benchmarks, "benchmark", watched)
    assert "TorchScript" in str(ours.benchmark(**options, verbose=False))
    assert seen == [("cpu",)]
    assert seam.active_devices() == ()


@pytest.mark.once
def test_training_twice_in_a_process_gives_the_same_twice(made_data, tmp_path):
    from ultralytics import YOLO

    rows = []
    for name in ("first", "second"):
        yolo = YOLO(small_model())
        handle = yolo_rocm.register(yolo, "cpu", OURS)
        with sick_vendor():
            yolo.train(
                data=str(made_data()),
                project=str(tmp_path),
                name=name,
                epochs=1,
                batch=4,
                plots=False,
                workers=0,
                **QUICK,
            )
        header, row = ((tmp_path / name / "results.csv").read_text().splitlines())[:2]
        clock = [cell.strip() for cell in header.split(",")].index("time")
        rows.append([cell for index, cell in enumerate(row.split(",")) if index != clock])
        assert set(handle.report.engines()) == {"gemm"}
    assert rows[0] == rows[1]
    with sick_vendor(), pytest.raises(RuntimeError, match=MESSAGE):
        YOLO(tmp_path / "first" / "weights" / "best.pt").predict(an_image(made_data()), **QUICK)


def trains_several_data_sets() -> bool:
    from ultralytics.engine import trainer

    return hasattr(trainer, "MultiTrainer")


@pytest.mark.once
@pytest.mark.skipif(not trains_several_data_sets(), reason="this Ultralytics trains one data set at a time")
def test_several_data_sets_are_trained_one_after_another_under_the_preset(made_data, tmp_path):
    from ultralytics import YOLO

    yolo = YOLO(small_model())
    yolo_rocm.register(yolo, "cpu", OURS)
    data = [str(made_data()), str(made_data("obb"))]  # boxes are read from its corners too
    with sick_vendor():
        yolo.train(
            data=data, project=str(tmp_path), epochs=1, batch=4, plots=False, workers=0, **{**QUICK, "imgsz": 32}
        )
    assert len(list(tmp_path.rglob("rocm.json"))) == 2
    assert seam.active_devices() == ()
