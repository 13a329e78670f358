"""`predictor`: Ultralytics' own results by the engine that was chosen, remembered, and torch where anything fails."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import yolo_rocm
from yolo_rocm.api import run_mode
from yolo_rocm.errors import ConfigError, EngineError
from yolo_rocm.inference import chooser as module
from yolo_rocm.inference import predictor as predictor_module
from yolo_rocm.inference.chooser import Chooser, PredictRequest
from yolo_rocm.inference.exported import exported
from yolo_rocm.inference.measure import Measured
from yolo_rocm.inference.ways import Way
from yolo_rocm.session.session import Session

from .conftest import QUICK, assert_same

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("cache")]


def plain(weights, source):
    from ultralytics import YOLO

    return YOLO(weights).predict(source, **QUICK, rect=False)


def test_the_fastest_predicts_is_remembered_and_streams(weights, photos, surveys, events, cache):
    """A folder with images of two sizes and one that cannot be read: as Ultralytics takes it."""
    predict = yolo_rocm.predictor(str(weights), preset="cpu", **QUICK)
    assert_same(predict(str(photos)), plain(weights, str(photos)))
    assert predict.choice.way == Way("torchscript")
    assert events.of("predict.chosen")[0].startswith("predicting with torchscript: torchscript cpu fp32, 4.5 ms")
    stream = predict(str(photos), stream=True)
    assert next(stream).path.endswith("0.png")
    stream.close()
    again = yolo_rocm.predictor(str(weights), preset="cpu", **QUICK)
    assert len(again(str(photos))) == 3
    assert "measured before" in again.choice.why
    assert len(surveys) == 1
    assert len(json.loads(cache.read_text())) == 1


def test_what_a_choice_depends_on(weights, photos, surveys, cache, monkeypatch):
    monkeypatch.setattr(module, "exported", lambda weights, *_: weights)
    other = weights.with_name("other.pt")
    other.write_bytes(weights.read_bytes() + b"more")
    copy = weights.with_name("copy.pt")
    copy.write_bytes(weights.read_bytes())
    session, request = Session("cpu", None), PredictRequest(64)
    card = Session("cpu", None)
    card.machine = replace(card.machine, torch="9.9")
    asked = [(session, weights, request), (session, copy, request), (session, other, request), (card, weights, request)]
    asked += [(session, weights, PredictRequest(32)), (session, weights, PredictRequest(64, batch=2))]
    for each, file, wish in asked:
        Chooser(each, "auto").choose(file, "detect", str(photos), wish)
    assert len(surveys) == len(json.loads(cache.read_text())) == 5
    cache.write_text("[]")  # makes no sense: measured again
    Chooser(session, "auto").choose(weights, "detect", str(photos), request)
    assert len(surveys) == 6


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_by_name_that_fails_is_an_error(weights, photos, surveys, cache, stream):
    """Neither a result of torch nor a choice that is remembered is left behind; the next call measures again."""
    predict = yolo_rocm.predictor(str(weights), engine="torchscript", preset="cpu", **QUICK)
    file = exported(weights, "torchscript", {"imgsz": 64})
    right = file.read_bytes()
    file.write_bytes(b"no model")
    with pytest.raises(EngineError, match="torchscript cpu fp32 has failed at what torch predicts"):
        list(predict(str(photos), stream=stream))
    assert json.loads(cache.read_text()) == {}
    file.write_bytes(right)
    assert_same(predict(str(photos), stream=stream), plain(weights, str(photos)))
    assert len(surveys) == 2
    with pytest.raises(EngineError, match="engine=torchscript cannot be used: augment= needs the layers of the model"):
        predict(str(photos), augment=True)


def test_where_nothing_agrees_torch_predicts_and_an_engine_by_name_is_refused(weights, photos, events, monkeypatch):
    wrong = Measured(Way("onnx"), median_ms=1.0, agreement=0.5, objects=9)
    blind = Measured(Way("ncnn"), median_ms=1.0)
    calls = []
    monkeypatch.setattr(module, "survey", lambda *args, **more: calls.append(1) or [wrong, blind])
    monkeypatch.setattr(module, "candidates", lambda *args: [wrong.way, blind.way])
    predict = yolo_rocm.predictor(str(weights), preset="cpu", **QUICK)
    for _ in range(2):
        assert len(predict(str(photos))) == 3
    assert (predict.choice.engine, len(calls), events.ids.count("predict.torch")) == ("torch", 1, 1)
    assert events.of("predict.left_out") == [
        "onnx cpu fp32 is left out: 0.500 of objects the same",
        "ncnn cpu fp32 is left out: no object to compare by",
    ]
    monkeypatch.setattr(predictor_module, "check_engine", lambda *args: None)
    predict = yolo_rocm.predictor(str(weights), engine="onnx", preset="cpu", **QUICK)
    with pytest.raises(EngineError, match=r"engine=onnx cannot be used: .*0\.500 of objects the same"):
        predict(str(photos))


def test_mistakes(weights, tmp_path, surveys):
    from ultralytics import YOLO

    with pytest.raises(ConfigError, match="unknown engine 'tensorrt'"):
        yolo_rocm.predictor(str(weights), engine="tensorrt")
    yolo = YOLO(weights)
    with pytest.raises(ConfigError, match="unknown engine 'tensorrt'"):
        yolo_rocm.register(yolo, "cpu", engine="tensorrt")
    assert "predict" not in vars(yolo)
    with pytest.raises(ConfigError, match="a model for detect, not for segment"):
        yolo_rocm.predictor(str(weights), task="segment")
    with pytest.raises(ConfigError, match="needs the weights of a model"):
        yolo_rocm.predictor("yolov8n.yaml", engine="torchscript")
    predict = yolo_rocm.predictor(str(weights), preset="cpu", **QUICK)
    for source, words in ((str(tmp_path / "nowhere"), "does not exist"), (None, "no source")):
        with pytest.raises(ConfigError, match=words):
            predict(source)
    assert surveys == []


def test_the_command(weights, photos, surveys, tmp_path):
    given = {"source": str(photos), "engine": "auto", "project": str(tmp_path / "runs"), **QUICK}
    assert run_mode("predict", str(weights), "cpu", **given).result == 3
    assert len(list((tmp_path / "runs").rglob("*.jpg"))) == 3
    assert len(surveys) == 1
