"""Real engines in real processes: those that are right agree, one that is broken on purpose is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ultralytics import YOLO

from yolo_rocm.errors import ExportError
from yolo_rocm.inference import measure as module
from yolo_rocm.inference.exported import exported
from yolo_rocm.inference.measure import Measured, comparison, fastest, survey
from yolo_rocm.inference.ways import BASE, Way
from yolo_rocm.ultralytics_hooks import predicting

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def compared(busy_weights, photos):
    """What torch finds on images of two sizes, and what measures another way."""
    images = predicting.first_images(str(photos), 3)
    assert len({image.shape for image in images}) == 2
    with comparison(busy_weights, "detect", images, imgsz=64, batch=2, preset="cpu") as (reference, measure):
        assert reference.agrees
        assert reference.objects > 8
        assert all((reference.setup_s, reference.median_ms, reference.p95_ms, reference.images_per_s))
        yield measure


def test_a_copy_with_scaled_weights_is_refused(compared, exported_once, tmp_path):
    right = exported(exported_once / "busy.pt", "torchscript", {"imgsz": 64})
    facts = {"config.txt": ""}
    graph = torch.jit.load(str(right), _extra_files=facts)
    with torch.no_grad():
        for name, each in [*graph.named_parameters(), *graph.named_buffers()]:
            if each.dim() == 4 and "dfl" not in name:
                each.mul_(1.3)
    torch.jit.save(graph, str(tmp_path / "scaled.torchscript"), _extra_files=facts)
    scaled = compared(Way("torchscript"), tmp_path / "scaled.torchscript")
    assert (scaled.error, scaled.agrees) == ("", False)


def test_images_for_an_exported_model_of_stride_8_are_padded_as_for_its_weights(exported_once, photos):
    """Torch's least stride is 32; plain Ultralytics reads that of an exported model from the file."""
    graph = YOLO(exported_once / "busy_yolo_rocm" / "torchscript-imgsz-64" / "busy.torchscript", task="detect")
    graph.predict(photos / "0.png", imgsz=64, device="cpu", verbose=False)
    assert int(max(YOLO(exported_once / "busy.pt").model.stride)) == 8
    assert int(graph.predictor.model.stride) == 32


def test_an_export_that_fails_leaves_the_others(monkeypatch, tmp_path):
    """The order of a survey, with stand-ins for what is measured."""

    def fails(weights, format, arguments):
        if format == "ncnn":
            raise ExportError("the disk is full")
        return Path(f"model.{format}")

    answer = {"agreement": 1.0, "median_ms": 1.0, "conf": 0.1}
    monkeypatch.setattr(module, "run_module", lambda *args: type("R", (), {"answer": answer, "error": ""}))
    monkeypatch.setattr(module, "exported", fails)
    steps = []
    ways = [BASE, Way("ncnn"), Way("onnx")]
    rows = survey(tmp_path / "a.pt", "detect", [], ways, imgsz=64, progress=lambda *step: steps.append(step))
    assert [row.way for row in rows] == ways
    assert [row.error for row in rows] == ["", "the disk is full", ""]
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_the_fastest_is_one_that_agrees():
    slow = Measured(BASE, median_ms=9.0, agreement=1.0)
    quick = Measured(Way("onnx"), median_ms=5.0, images_per_s=90.0, agreement=1.0)  # one call of it was slow
    steady = Measured(Way("torchscript"), median_ms=6.0, images_per_s=160.0, agreement=0.99)
    wrong = Measured(Way("ncnn"), median_ms=1.0, agreement=0.98)
    failed = Measured(Way("openvino"), error="segmentation fault")
    rows = [slow, quick, steady, wrong, failed]
    assert fastest(rows, [row.way for row in rows]) is quick
    assert fastest(rows, [BASE, wrong.way]) is slow
    assert fastest(rows, [wrong.way, failed.way]) is None
