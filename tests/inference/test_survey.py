"""Real engines on real processes: those that are right agree, one that is broken on purpose is refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from ultralytics import YOLO

from yolo_rocm import bench
from yolo_rocm.errors import ConfigError, ExportError
from yolo_rocm.inference import survey as module
from yolo_rocm.inference.agreement import Agreement
from yolo_rocm.inference.exported import Exported, exported
from yolo_rocm.inference.measure import Measured, Trial, keep_images, measure, reference
from yolo_rocm.inference.survey import fastest, survey
from yolo_rocm.inference.ways import BASE, Way
from yolo_rocm.ultralytics_hooks import predicting

from .test_agreement import liven

pytestmark = pytest.mark.once
DEMO_MODEL = str(Path(bench.__file__).with_name("demo_model.yaml"))


def has(*names: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


@pytest.fixture(scope="module")
def trial(busy_weights, photos, tmp_path_factory):
    """Images of two sizes, and what torch finds on them."""
    folder = tmp_path_factory.mktemp("trial")
    (folder / "images").mkdir()
    images = predicting.first_images(str(photos), 4)
    assert len({image.shape for image in images}) == 2
    keep_images(images, folder / "images")
    found, row = reference(Trial(busy_weights, "detect", 64, 2, folder / "images", folder, seconds=0.0, preset="cpu"))
    assert row.agrees
    assert row.agreement.objects > 20
    assert all((row.setup_s, row.median_ms, row.p95_ms, row.images_per_s))
    return found


def of_engine(trial, engine: str, file: Path | None = None) -> Measured:
    way = Way(engine)
    return measure(trial, way, file or exported(trial.weights, way.format, way.export_arguments(64)).file)


@pytest.mark.skipif(not has("onnx", "onnxruntime"), reason="onnx and onnxruntime are not installed")
def test_onnx_agrees_and_its_copy_with_scaled_weights_is_refused(trial, tmp_path):
    import onnx
    from onnx import numpy_helper

    right = of_engine(trial, "onnx")
    assert (right.error, right.agreement.share) == ("", 1.0)
    graph = onnx.load(str(exported(trial.weights, "onnx", Way("onnx").export_arguments(64)).file))
    for tensor in graph.graph.initializer:
        if len(tensor.dims) == 4:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 1.1, tensor.name))
    onnx.save(graph, str(tmp_path / "scaled.onnx"))
    scaled = of_engine(trial, "onnx", tmp_path / "scaled.onnx")
    assert not scaled.error
    assert not scaled.agrees
    assert fastest([scaled], [scaled.way]) is None


@pytest.mark.skipif(not has("onnx", "onnxruntime"), reason="onnx and onnxruntime are not installed")
def test_images_for_an_exported_model_of_stride_8_are_padded_as_for_its_weights(tmp_path):
    """72 x 96 pixels become 96 x 96 in torch, whose least stride is 32; plain Ultralytics reads it from the file."""
    torch.manual_seed(0)
    yolo, file = YOLO(DEMO_MODEL), tmp_path / "stride_8.pt"
    assert int(max(yolo.model.stride)) == 8
    liven(yolo.model)
    yolo.save(file)
    image = np.random.default_rng(0).integers(0, 255, (72, 96, 3), dtype=np.uint8)
    made = exported(file, "onnx", Way("onnx").export_arguments(96)).file
    (by_torch,), (by_onnx,) = (
        YOLO(model, task="detect").predict(image, imgsz=96, conf=0.05, max_det=20, device="cpu", verbose=False)
        for model in (file, made)
    )
    assert len(by_torch) > 5
    torch.testing.assert_close(by_onnx.boxes.data, by_torch.boxes.data, rtol=1e-3, atol=1e-2)


@pytest.mark.deep
@pytest.mark.skipif(not has("ncnn", "pnnx"), reason="ncnn and pnnx are not installed")
def test_ncnn_agrees(trial):
    row = of_engine(trial, "ncnn")
    assert (row.error, row.agreement.share) == ("", 1.0)


def test_a_file_that_is_no_model_is_a_row_with_an_error(trial, tmp_path):
    (tmp_path / "broken.torchscript").write_bytes(b"no model")
    row = of_engine(trial, "torchscript", tmp_path / "broken.torchscript")
    assert row.error
    assert not row.agrees


def test_an_export_that_fails_leaves_the_others(monkeypatch, tmp_path):
    """The order of a survey, with stand-ins for what is measured."""
    right = Agreement(1.0, 9, 0.0)
    first = Measured(BASE, images_per_s=1.0, agreement=right)

    def fails(weights, format, arguments):
        if format == "ncnn":
            raise ExportError("the disk is full")
        return Exported(Path(f"model.{format}"), 7.0)

    monkeypatch.setattr(module, "reference", lambda trial: (trial, first))
    monkeypatch.setattr(module, "measure", lambda trial, way, file, limit_s: Measured(way, agreement=right))
    monkeypatch.setattr(module, "exported", fails)
    steps = []
    wanted = [BASE, Way("ncnn"), Way("onnx")]
    rows = survey(tmp_path / "a.pt", "detect", [], wanted, imgsz=64, progress=lambda *step: steps.append(step))
    assert [row.way for row in rows] == wanted
    assert [row.error for row in rows] == ["", "the disk is full", ""]
    assert rows[2].export_s == 7.0
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_the_fastest_is_one_that_agrees():
    right, wrong = Agreement(1.0, 9, 0.0), Agreement(0.5, 9, 0.0)
    slow = Measured(BASE, median_ms=9.0, agreement=right)
    quick = Measured(Way("onnx"), median_ms=5.0, images_per_s=90.0, agreement=right)  # one call of it was slow
    steady = Measured(Way("torchscript"), median_ms=6.0, images_per_s=160.0, agreement=right)
    quickest = Measured(Way("ncnn"), median_ms=1.0, agreement=wrong)
    failed = Measured(Way("openvino"), error="segmentation fault")
    rows = [slow, quick, steady, quickest, failed]
    assert fastest(rows, [row.way for row in rows]) is quick
    assert fastest(rows, [BASE, quickest.way]) is slow
    assert fastest(rows, [quickest.way, failed.way]) is None


@pytest.mark.parametrize("case", ["empty", "unreadable", "missing"])
def test_sources_without_images(case, tmp_path):
    folder: Path = tmp_path / case
    if case != "missing":
        folder.mkdir()
    if case == "unreadable":
        (folder / "a.jpg").write_bytes(b"no image")
    with pytest.raises(ConfigError, match=r"No images|holds no image|does not exist"):
        predicting.first_images(str(folder), 4)
