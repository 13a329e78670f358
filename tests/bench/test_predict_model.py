"""`bench predict-model`: every way is measured in a process of its own, compared, and put into a table."""

from __future__ import annotations

import csv

import pytest
from typer.testing import CliRunner

from yolo_rocm.bench import predict_model, predict_model_child
from yolo_rocm.bench.predict_model import OURS, OURS_FUSED, STOCK, TORCHSCRIPT, WAYS, Latency
from yolo_rocm.cli.main import app
from yolo_rocm.errors import YoloRocmError
from yolo_rocm.utils.child_process import ChildResult

from ..small_model import small_model

GIVEN = {"imgsz": 32, "half": True, "rounds": 1, "calls": 3}
ON_CPU = {"conv": {"devices": ["cpu"], "engine": "gemm"}}


@pytest.fixture(scope="module")
def small() -> str:
    return small_model()


def test_ways_are_measured_in_turns_and_compute_the_same(small):
    given = {**GIVEN, "model": small, "batch": 2, "ways": [STOCK, TORCHSCRIPT, OURS, OURS_FUSED], "rocm": ON_CPU}
    rows = list(predict_model_child.measure(given))
    assert [row.way for row in rows] == given["ways"]
    for row in rows:
        assert not row.error
        assert row.median_ms > 0
        assert row.departure < 1e-4
    assert rows[0].to_stock == 1
    assert "inference" not in rows[2].said
    assert "inference convolution shapes" in rows[3].said


def test_an_untrained_network_shows_what_is_computed_wrong(small, monkeypatch):
    traced = predict_model_child.backends.traced

    def wrong(backend, x):
        network = predict_model_child.backends.network_of(backend)
        next(network.parameters()).data.mul_(1.1)
        return traced(backend, x)

    monkeypatch.setattr("yolo_rocm.ultralytics_hooks.backends.traced", wrong)
    rows = list(predict_model_child.measure({**GIVEN, "model": small, "batch": 1, "ways": [STOCK, TORCHSCRIPT]}))
    assert rows[0].departure < 1e-4 < 1e-3 < rows[1].departure


def test_a_way_that_fails_does_not_take_the_others_with_it(small, monkeypatch):
    def broken(*_):
        raise RuntimeError("no compiler\nand so on")

    monkeypatch.setattr("yolo_rocm.ultralytics_hooks.backends.traced", broken)
    rows = predict_model_child.measure({**GIVEN, "model": small, "batch": 1, "ways": [STOCK, TORCHSCRIPT]})
    assert {row.way: row.error for row in rows} == {TORCHSCRIPT: "RuntimeError: no compiler", STOCK: ""}


def test_a_process_that_dies_costs_its_batch(small, monkeypatch):
    result = ChildResult({STOCK: {"way": STOCK, "batch": 8, "median_ms": 2.0}}, "the process ended by SIGSEGV")
    monkeypatch.setattr(predict_model, "run_module", lambda *_: result)
    rows = predict_model.rows({**GIVEN, "model": small, "batch": "8", "ways": OURS}, lambda *_: None)
    assert rows[0] == Latency(STOCK, 8, 2.0)
    assert rows[1].error == "the process ended by SIGSEGV"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("batch", "0", "got '0'"),
        ("batch", "a,b", "got 'a,b'"),
        ("ways", "fastest", "unknown way 'fastest'"),
        ("imgsz", "foo", "imgsz must be a whole number of at least 32, such as 640, got 'foo'"),
        ("half", "maybe", "half must be true or false"),
        ("rounds", 0, "rounds must be a whole number"),
        ("calls", 2.5, "calls must be a whole number"),
        ("preset", "rx5600", "did you mean 'rx5600xt'"),
        ("model", "coco8.yaml", "'coco8.yaml' is no model"),
    ],
)
def test_mistakes_are_named(small, monkeypatch, key, value, text):
    monkeypatch.setattr(predict_model, "_in_child", lambda given: pytest.fail("nothing is to be measured"))
    given = {**GIVEN, "model": small, "batch": "1", "ways": "all", key: value}
    with pytest.raises(YoloRocmError, match=text):
        predict_model.rows(given, lambda *_: None)


def test_the_command_writes_and_prints_a_table(monkeypatch, tmp_path):
    found = [Latency(way, 1, 1.5, 2.0, 0.5, 0.1, 1e-3) for way in WAYS[:-1]] + [Latency(WAYS[-1], 1, error="no GPU")]
    monkeypatch.setattr(predict_model, "rows", lambda given, show: found)
    result = CliRunner().invoke(app, ["bench", "predict-model", "batch=1", f"out={tmp_path}"])
    assert result.exit_code == 0, result.output
    assert "0.50x" in result.output
    assert "not runnable here: no GPU" in result.output
    (file,) = tmp_path.glob("predict-model-*.csv")
    with file.open(newline="") as rows:
        assert [row["way"] for row in csv.DictReader(rows)] == list(WAYS)
