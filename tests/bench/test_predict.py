"""`bench predict`: a table, a CSV file, a drawing and JSON of what each way has shown; mistakes in one message."""

from __future__ import annotations

import csv
import json

import pytest
from typer.testing import CliRunner

from yolo_rocm.bench import predict as module
from yolo_rocm.errors import ConfigError
from yolo_rocm.inference.measure import Measured
from yolo_rocm.inference.ways import BASE, Way

from ..small_model import small_model
from ..tables import each_row

pytestmark = pytest.mark.once
NUMBERS = {"setup_s": 1.0, "p95_ms": 12.0, "conf": 0.25, "objects": 45}
ROWS = [
    Measured(BASE, median_ms=4.5, images_per_s=150.0, agreement=1.0, **NUMBERS),
    Measured(Way("ncnn"), median_ms=4.0, images_per_s=100.0, agreement=0.9956, **NUMBERS),  # one of its calls was slow
    Measured(Way("torchscript"), median_ms=1.0, images_per_s=900.0, agreement=1.0, **NUMBERS),  # the preset has it not
    Measured(Way("ncnn", "vulkan:0", "fp16"), median_ms=2.0, images_per_s=500.0, agreement=0.7, **NUMBERS),
    Measured(Way("ncnn", "vulkan:0"), error="the process ended by SIGABRT: LLVM ERROR"),
]


@pytest.fixture
def weights(tmp_path):
    from ultralytics import YOLO

    YOLO(small_model()).save(tmp_path / "best.pt")
    return tmp_path / "best.pt"


@pytest.fixture
def surveys(monkeypatch):
    calls = []

    def survey(weights, task, images, ways, **options):
        calls.append({"task": task, "images": len(images), "ways": ways, **options})
        return ROWS

    monkeypatch.setattr(module, "survey", survey)
    monkeypatch.setattr(module, "candidates", lambda *args: [BASE, Way("ncnn"), Way("ncnn", "vulkan:0", "fp16")])
    return calls


def run(*words):
    from yolo_rocm.cli.main import app

    return CliRunner().invoke(app, ["bench", "predict", *map(str, words)], catch_exceptions=False)


def test_everything_it_leaves(weights, surveys, tmp_path):
    done = run(weights, "imgsz=320", "batch=2", "engines=torch", f"out={tmp_path}")
    assert done.exit_code == 0
    assert "ncnn cpu fp32 *" in done.stdout
    assert "0.9956" in done.stdout
    assert "ncnn vulkan:0 fp32: not runnable here: the process ended by SIGABRT" in done.stdout
    assert "what engine=auto takes: ncnn cpu fp32" in done.stdout
    assert (surveys[0]["imgsz"], surveys[0]["batch"], surveys[0]["task"], surveys[0]["images"]) == (320, 2, "detect", 2)
    with (tmp_path / "predict-best-320-b2.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["way"] for row in rows] == [row.way.name for row in ROWS]
    assert [row["auto"] for row in rows] == ["False", "True", "False", "False", "False"]
    assert (rows[3]["agreement"], rows[4]["agreement"]) == ("0.7", "")
    assert "bench predict" in rows[0]["command"]
    assert (tmp_path / "predict-best-320-b2.png").stat().st_size > 1000


def test_json(weights, surveys, tmp_path):
    data = json.loads(run(weights, "imgsz=320", f"out={tmp_path}", "--json").stdout)
    assert (data["auto"], data["ways"][1]["median_ms"]) == ("ncnn cpu fp32", 4.0)
    assert data["ways"][4]["error"]


def test_nothing_to_compare_is_said(weights, surveys, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "survey", lambda *args, **options: [Measured(BASE, median_ms=1.0, images_per_s=1.0)])
    assert "nothing could be compared" in run(weights, f"out={tmp_path}").stdout


@each_row(
    ("model", "options", "words"),
    [
        (None, {"imgsz": (320, 0)}, "imgsz must be a whole number"),
        (None, {"images": True}, "images must be a whole number"),
        (None, {"limit_s": 0}, "limit_s must be a number above 0, such as 600, got 0"),
        (None, {"source": "nowhere"}, "source 'nowhere' does not exist"),
        (None, {"engines": "torch,tensorrt"}, "unknown engine 'tensorrt'"),
        ("yolov8n.yaml", {}, r"needs the weights of a model, a \.pt file"),
        ("coco8.yaml", {}, r"'coco8.yaml' is no model"),
    ],
)
def test_mistakes(weights, surveys, model, options, words):
    with pytest.raises(ConfigError, match=words):
        module.bench_predict(model or str(weights), **options)
    assert surveys == []
