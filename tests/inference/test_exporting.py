"""`yolo-rocm export`: on the CPU by itself, delivered only when it predicts what torch predicts."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from yolo_rocm.api import run_mode
from yolo_rocm.errors import ExportError
from yolo_rocm.inference import exporting as module
from yolo_rocm.inference.measure import Measured
from yolo_rocm.inference.ways import BASE, Way

from .conftest import machine

pytestmark = pytest.mark.once


@pytest.fixture
def export(monkeypatch, weights):
    """Return a function that exports to ONNX by a stand-in, whose comparison has the outcome that is given."""
    (weights.parent / "busy.onnx").write_text("old")

    @contextmanager
    def new_export(file, format, arguments, where):
        (where / ".stage").mkdir()
        product = where / ".stage" / f"{file.stem}.{format}"
        product.write_text("new")
        yield product
        shutil.rmtree(where / ".stage")

    def run(outcome, **arguments):
        row = Measured(Way("onnx"), **{"objects": 9, **outcome})

        @contextmanager
        def comparison(*_, **__):
            yield Measured(BASE), lambda way, file: row

        monkeypatch.setattr(module, "comparison", comparison)
        try:
            file = module.export_checked(str(weights), format="onnx", imgsz=64, **arguments)
            assert file == weights.parent / "busy.onnx"
        finally:
            left = (weights.parent / "busy.onnx").read_text()
        assert left == "new"

    monkeypatch.setattr(module, "new_export", new_export)
    monkeypatch.setattr(module, "detect", lambda: machine("onnx", "onnxruntime"))
    return run


@pytest.mark.parametrize(
    ("outcome", "arguments", "event"),
    [
        ({"agreement": 1.0}, {}, "export.agrees"),
        ({"agreement": 0.9}, {"int8": True}, "export.int8"),
        ({"objects": 0}, {}, "export.unchecked"),
    ],
)
def test_what_is_delivered(export, events, outcome, arguments, event):
    export(outcome, **arguments)
    assert event in events.ids


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ({"agreement": 0.6}, r"0\.600 of 9 objects are the same"),
        ({"error": "the process was ended by SIGSEGV"}, "does not predict, and is thrown away: .*SIGSEGV"),
    ],
)
def test_what_does_not_agree_is_thrown_away_and_the_old_file_stays(export, weights, outcome, words):
    with pytest.raises(ExportError, match=words):
        export(outcome)
    assert (weights.parent / "busy.onnx").read_text() == "old"


def test_a_real_export_under_a_vendor_library_that_is_broken(busy_weights, tmp_path, sick):
    """Native convolutions raise in this process; the export and the comparison happen in others, on the CPU."""
    shutil.copy(busy_weights, tmp_path / "busy.pt")
    outcome = run_mode("export", str(tmp_path / "busy.pt"), "cpu", format="torchscript", imgsz=64)
    assert Path(outcome.result) == tmp_path / "busy.torchscript"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["busy.pt", "busy.torchscript"]


def test_other_formats_are_left_to_ultralytics():
    assert module.is_checked("best.pt", {"format": "ncnn"})
    assert not module.is_checked("best.pt", {"format": "coreml"})
    assert not module.is_checked("yolov8n.yaml", {"format": "onnx"})
