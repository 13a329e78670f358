"""`predictor`: Ultralytics' own results by the engine that was chosen, remembered, and torch where anything fails."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import yolo_rocm
from yolo_rocm.errors import ConfigError, EngineError
from yolo_rocm.hardware.packages import Packages
from yolo_rocm.inference import chooser as module
from yolo_rocm.inference import predictor as predictor_module
from yolo_rocm.inference.agreement import Agreement
from yolo_rocm.inference.measure import Measured
from yolo_rocm.inference.ways import Way

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("cache")]
QUICK = {"imgsz": 64, "device": "cpu", "verbose": False, "conf": 0.05, "max_det": 20}
SCRIPT = Way("torchscript")


def plain(weights, source, **more):
    from ultralytics import YOLO

    return YOLO(weights).predict(source, **QUICK, rect=False, **more)


def assert_same(got, wanted):
    got = list(got)
    assert len(got) == len(wanted) > 0
    assert sum(len(result) for result in wanted) > 0
    for mine, theirs in zip(got, wanted, strict=True):
        assert type(mine) is type(theirs)
        assert mine.path == theirs.path
        torch.testing.assert_close(mine.boxes.data, theirs.boxes.data, rtol=1e-3, atol=1e-2)


def test_the_fastest_predicts_is_remembered_and_streams(ready_weights, photos, surveys, lines, cache):
    """A folder with images of two sizes and one that cannot be read: as Ultralytics takes it."""
    predict = yolo_rocm.predictor(str(ready_weights), preset="cpu", **QUICK)
    assert_same(predict(str(photos)), plain(ready_weights, str(photos)))
    assert predict.choice.way == SCRIPT
    assert [line for line in lines if line.startswith("predicting with torchscript: torchscript cpu fp32, 4.5 ms")]
    assert (ready_weights.parent / "busy_yolo_rocm").is_dir()
    stream = predict(str(photos), stream=True)
    first = next(stream)
    assert first.path.endswith("0.png")
    stream.close()
    array = np.zeros((64, 64, 3), dtype=np.uint8)
    assert len(predict(array)) == 1
    assert len(surveys) == 1

    again = yolo_rocm.predictor(str(ready_weights), preset="cpu", **QUICK)
    assert len(again(str(photos))) == 4
    assert len(surveys) == 1
    assert "measured before" in again.choice.why
    assert len(json.loads(cache.read_text())) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_by_name_that_fails_is_an_error(ready_weights, photos, surveys, lines, cache, stream):
    """Neither a result of torch nor a choice that is remembered is left behind; the next call measures again."""
    predict = yolo_rocm.predictor(str(ready_weights), engine="torchscript", preset="cpu", **QUICK)
    file = module.exported(ready_weights, "torchscript", SCRIPT.export_arguments(64)).file
    right = file.read_bytes()
    file.write_bytes(b"no model")
    for asked in (1, 2):
        with pytest.raises(EngineError, match="torchscript cpu fp32 has failed at what torch predicts"):
            list(predict(str(photos), stream=stream))
        assert len(surveys) == asked
    assert json.loads(cache.read_text()) == {}
    file.write_bytes(right)
    assert_same(predict(str(photos), stream=stream), plain(ready_weights, str(photos)))
    with pytest.raises(EngineError, match="engine=torchscript cannot be used: augment= needs the layers of the model"):
        predict(str(photos), augment=True)


def test_where_nothing_agrees_torch_predicts(weights, photos, lines, monkeypatch):
    wrong = Measured(Way("onnx"), images_per_s=9.0, median_ms=1.0, agreement=Agreement(0.5, 9, 0.2))
    blind = Measured(Way("ncnn"), images_per_s=9.0, median_ms=1.0, agreement=Agreement(float("nan"), 0, 0.0))
    monkeypatch.setattr(module, "survey", lambda *args, **more: [wrong, blind])
    monkeypatch.setattr(module, "candidates", lambda *args: [wrong.way, blind.way])
    predict = yolo_rocm.predictor(str(weights), preset="cpu", **QUICK)
    assert len(predict(str(photos))) == 4
    assert predict.choice.engine == "torch"
    assert "onnx cpu fp32 is left out: 0.500 of the objects are the same" in lines
    assert "ncnn cpu fp32 is left out: no object to compare by" in lines
    assert any("no engine was found to agree with torch" in line for line in lines)
    monkeypatch.setattr(predictor_module, "check_engine", lambda *args: None)
    predict = yolo_rocm.predictor(str(weights), engine="onnx", preset="cpu", **QUICK)
    with pytest.raises(EngineError, match=r"engine=onnx cannot be used: .*0\.500 of the objects are the same"):
        predict(str(photos))


def test_an_engine_by_name_that_is_not_installed_is_an_error_with_the_line_to_install_it(weights, photos, monkeypatch):
    """Also for an object that is registered, which is then left as it was."""
    from ultralytics import YOLO

    from yolo_rocm.api import run_mode

    given = {"engine": "onnx", "preset": "cpu"}
    monkeypatch.setattr(Packages, "version", lambda self, name: None if name == "onnxruntime" else "1")
    refused = r"engine=onnx cannot be used: onnxruntime is not installed\. To install it: pip install .*onnxruntime"
    with pytest.raises(EngineError, match=refused):
        yolo_rocm.predictor(str(weights), **given)
    with pytest.raises(EngineError, match=refused):
        run_mode("predict", str(weights), source=str(photos), **given)
    yolo = YOLO(weights)
    with pytest.raises(EngineError, match=refused):
        yolo_rocm.register(yolo, **given)
    assert "predict" not in vars(yolo)


def test_an_engine_by_name_that_is_not_for_this_device_is_an_error(weights, photos):
    predict = yolo_rocm.predictor(str(weights), engine="torchscript", preset="cpu", **{**QUICK, "device": "vulkan:0"})
    with pytest.raises(EngineError, match="nothing computes on device=vulkan:0"):
        predict(str(photos))


def test_mistakes(weights, tmp_path, surveys):
    with pytest.raises(ConfigError, match="unknown engine 'tensorrt'"):
        yolo_rocm.predictor(str(weights), engine="tensorrt")
    with pytest.raises(ConfigError, match="a model for detect, not for segment"):
        yolo_rocm.predictor(str(weights), task="segment")
    with pytest.raises(ConfigError, match="needs the weights of a model"):
        yolo_rocm.predictor("yolov8n.yaml", engine="ncnn")
    (tmp_path / "empty").mkdir()
    predict = yolo_rocm.predictor(str(weights), preset="cpu", **QUICK)
    with pytest.raises(ConfigError, match="No images"):
        predict(str(tmp_path / "empty"))
    with pytest.raises(ConfigError, match="no source"):
        predict()
    assert not (weights.parent / "busy_yolo_rocm").exists()
    assert surveys == []


def test_the_command(ready_weights, photos, surveys, tmp_path, capsys):
    from yolo_rocm.api import run_mode

    outcome = run_mode(
        "predict", str(ready_weights), "cpu", source=str(photos), engine="auto", project=str(tmp_path), **QUICK
    )
    assert outcome.result == 4
    assert len([path for path in Path(tmp_path).rglob("*.jpg") if "photos" not in str(path)]) == 4
    assert len(surveys) == 1
