"""`yolo-rocm export`: on the CPU by itself, delivered only when it predicts what torch predicts."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from yolo_rocm.api import run_mode
from yolo_rocm.errors import ExportError
from yolo_rocm.inference import exporting as module
from yolo_rocm.inference.agreement import Agreement
from yolo_rocm.inference.measure import Measured
from yolo_rocm.inference.ways import Way

pytestmark = pytest.mark.once


@pytest.fixture
def stand_in(monkeypatch, weights):
    """An export that leaves a file, and a comparison with the outcome that a test asks for."""
    asked = []

    @contextmanager
    def new_export(file, format, arguments, where):
        asked.append((format, arguments))
        (where / ".stage").mkdir()
        product = where / ".stage" / f"{file.stem}.{format}"
        product.write_text("new")
        yield product

    row = Measured(Way("onnx"), agreement=Agreement(1.0, 9, 0.0), conf=0.25)

    def outcome(**changes):
        monkeypatch.setattr(module, "_compared", lambda *args: replace(row, **changes))

    monkeypatch.setattr(module, "new_export", new_export)
    monkeypatch.setattr(module, "detect", lambda: _everything())
    outcome()
    return outcome, asked


def _everything():
    from .test_ways import machine

    return machine("onnx", "onnxruntime", "ncnn", "pnnx", "openvino")


def test_what_agrees_is_delivered_beside_the_weights(stand_in, weights):
    file = module.export_checked(str(weights), format="onnx", imgsz=64)
    assert file == weights.parent / "busy.onnx"
    assert file.read_text() == "new"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agreement": Agreement(0.6, 9, 0.3)}, r"0\.600 of 9 objects are the same"),
        ({"error": "the process was ended by SIGSEGV"}, "does not predict, and is thrown away: .*SIGSEGV"),
    ],
)
def test_what_does_not_agree_is_thrown_away_and_the_old_file_stays(stand_in, weights, changes, words):
    (weights.parent / "busy.onnx").write_text("old")
    stand_in[0](**changes)
    with pytest.raises(ExportError, match=words):
        module.export_checked(str(weights), format="onnx", imgsz=64)
    assert (weights.parent / "busy.onnx").read_text() == "old"


def test_int8_says_how_far_it_agrees(stand_in, weights, events):
    stand_in[0](agreement=Agreement(0.9, 10, 0.1))
    assert module.export_checked(str(weights), format="openvino", imgsz=64, int8=True).exists()
    assert events.of("export.int8") == ["in int8 0.900 of 10 objects are those of torch"]


def test_what_is_missing_is_named(weights, monkeypatch):
    from .test_ways import machine

    monkeypatch.setattr(module, "detect", lambda: machine("ncnn"))
    with pytest.raises(ExportError, match=r"format=ncnn needs pnnx\. Run: pip install --no-deps ncnn pnnx=="):
        module.export_checked(str(weights), format="ncnn")


def test_a_real_export_under_a_vendor_library_that_is_broken(busy_weights, tmp_path, sick, monkeypatch):
    """Native convolutions raise in this process; the export and the comparison happen in others, on the CPU."""
    file = tmp_path / "busy.pt"
    file.write_bytes(busy_weights.read_bytes())
    outcome = run_mode("export", str(file), "cpu", format="torchscript", imgsz=64)
    assert Path(outcome.result) == tmp_path / "busy.torchscript"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["busy.pt", "busy.torchscript"]


def test_other_formats_are_left_to_ultralytics():
    assert module.is_checked("best.pt", {"format": "ncnn"})
    assert module.is_checked("best.pt", {})
    assert not module.is_checked("best.pt", {"format": "coreml"})
    assert not module.is_checked("yolov8n.yaml", {"format": "onnx"})
