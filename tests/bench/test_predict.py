"""`bench predict`: a table, a CSV file, a drawing and JSON of what each way has shown; mistakes in one message."""

from __future__ import annotations

import csv
import json
import math

import pytest
from typer.testing import CliRunner

from yolo_rocm.bench import predict as module
from yolo_rocm.errors import ConfigError
from yolo_rocm.inference import chooser
from yolo_rocm.inference.agreement import Agreement
from yolo_rocm.inference.measure import Measured
from yolo_rocm.inference.survey import fastest
from yolo_rocm.inference.ways import BASE, Way, candidates

pytestmark = pytest.mark.once
NUMBERS = {"setup_s": 1.0, "p95_ms": 12.0, "memory_mb": 100.0, "conf": 0.25}
ROWS = [
    Measured(BASE, median_ms=10.0, images_per_s=100.0, agreement=Agreement(1.0, 45, 0.0), **NUMBERS),
    Measured(Way("onnx"), median_ms=5.0, images_per_s=200.0, agreement=Agreement(0.9956, 45, 0.01), **NUMBERS),
    Measured(Way("ncnn", "vulkan:0", "fp16"), median_ms=2.0, images_per_s=500.0, agreement=Agreement(0.7, 45, 0.4)),
    Measured(Way("ncnn", "vulkan:0"), error="the process was ended by SIGABRT: LLVM ERROR"),
]


@pytest.fixture
def weights(tmp_path):
    from ultralytics import YOLO

    file = tmp_path / "best.pt"
    YOLO("yolov8n.yaml").save(file)
    return file


@pytest.fixture
def asked(monkeypatch):
    calls = []

    def survey(weights, task, images, ways, **options):
        calls.append({"task": task, "images": len(images), "ways": ways, **options})
        options["progress"](1, 1)
        return ROWS

    monkeypatch.setattr(module, "survey", survey)
    return calls


def run(*words):
    from yolo_rocm.cli.main import app

    return CliRunner().invoke(app, ["bench", "predict", *map(str, words)], catch_exceptions=False)


def test_everything_it_leaves(weights, asked, tmp_path):
    done = run(weights, "imgsz=320", "batch=2", "engines=torch", f"out={tmp_path}")
    assert done.exit_code == 0
    assert "onnx cpu fp32 *" in done.stdout
    assert "0.9956" in done.stdout
    assert "ncnn vulkan:0 fp32: not runnable here: the process was ended by SIGABRT" in done.stdout
    assert "what engine=auto takes: onnx cpu fp32" in done.stdout
    assert (asked[0]["imgsz"], asked[0]["batch"], asked[0]["task"], asked[0]["images"]) == (320, 2, "detect", 2)
    with (tmp_path / "predict-best-320-b2.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["way"] for row in rows] == [row.way.name for row in ROWS]
    assert [row["auto"] for row in rows] == ["False", "True", "False", "False"]
    assert rows[2]["agreement"] == "0.7"
    assert "bench predict" in rows[0]["command"]
    assert (tmp_path / "predict-best-320-b2.png").stat().st_size > 1000


def test_what_is_marked_is_what_auto_chooses(weights, asked, tmp_path, monkeypatch):
    """Neither an engine that the preset leaves out, nor one whose calls are slower and whose average is better."""
    right = Agreement(1.0, 45, 0.0)
    rows = [
        Measured(BASE, median_ms=4.5, images_per_s=150.0, agreement=right, **NUMBERS),
        Measured(Way("ncnn"), median_ms=4.8, images_per_s=200.0, agreement=right, **NUMBERS),
        Measured(Way("torchscript"), median_ms=1.0, images_per_s=900.0, agreement=right, **NUMBERS),
    ]
    monkeypatch.setattr(module, "survey", lambda *args, **options: rows)
    assert json.loads(run(weights, f"out={tmp_path}", "--json").stdout)["auto"] == "torch cpu fp32"
    for chosen_by in (module, chooser):
        assert chosen_by.fastest is fastest
        assert chosen_by.candidates is candidates


def test_json(weights, asked, tmp_path):
    data = json.loads(run(weights, "imgsz=320", f"out={tmp_path}", "--json").stdout)
    assert data["auto"] == "onnx cpu fp32"
    assert data["ways"][1]["median_ms"] == 5.0
    assert data["ways"][3]["error"]


def test_nothing_to_compare_is_said(weights, asked, tmp_path, monkeypatch):
    empty = Measured(BASE, median_ms=1.0, images_per_s=1.0, agreement=Agreement(math.nan, 0, 0.0), **NUMBERS)
    monkeypatch.setattr(module, "survey", lambda *args, **options: [empty])
    done = run(weights, f"out={tmp_path}")
    assert "nothing could be compared" in done.stdout
    json.loads(run(weights, f"out={tmp_path}", "--json").stdout)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 0}, "batch must be a whole number"),
        ({"images": True}, "images must be a whole number"),
        ({"imgsz": "foo"}, "imgsz must be a whole number"),
        ({"imgsz": (320, 0)}, "imgsz must be a whole number"),
        ({"seconds": "x"}, "seconds must be a number of seconds, such as 10, got 'x'"),
        ({"limit_s": 0}, "limit_s must be a number above 0, such as 600, got 0"),
        ({"source": "nowhere"}, "source 'nowhere' does not exist"),
    ],
)
def test_mistakes(weights, asked, options, words):
    with pytest.raises(ConfigError, match=words):
        module.bench_predict(str(weights), **options)
    with pytest.raises(ConfigError, match=r"needs the weights of a model, a \.pt file"):
        module.bench_predict("yolov8n.yaml")
    with pytest.raises(ConfigError, match=r"'coco8.yaml' is no model"):
        module.bench_predict("coco8.yaml")
    with pytest.raises(ConfigError, match="unknown engine 'tensorrt'"):
        module.bench_predict(str(weights), engines="torch,tensorrt")
    assert asked == []
