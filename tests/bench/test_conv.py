"""`bench conv`: what it tunes, in which order, and what it says meanwhile."""

from __future__ import annotations

import csv

import pytest
import torch
from typer.testing import CliRunner

from yolo_rocm.bench import conv as conv_module
from yolo_rocm.bench.conv import AUTO, VENDOR, bench_conv
from yolo_rocm.bench.layers import model_layers
from yolo_rocm.cli.main import app
from yolo_rocm.conv.plan import Planner


@pytest.fixture
def layers():
    return model_layers("yolov8n-cls.yaml", 32, 1, torch.float32, "cpu")[:3]


@pytest.mark.parametrize("engine", ["gemm", "vendor"])
def test_everything_is_tuned_together_before_anything_is_reported(layers, engine, monkeypatch):
    planner, asked, told = Planner(engine, remember=False), [], []
    inner = planner.tune
    monkeypatch.setattr(
        planner, "tune", lambda problems, *a, **k: (asked.append(list(problems)), inner(problems, *a, **k))
    )
    rows = bench_conv(layers, planner, lambda *numbers: told.append(numbers), repeats=1, quick=True)
    everything = len(layers) * (2 if engine == "gemm" else 1)
    assert asked == ([[layer.problem for layer in layers]] if engine == "gemm" else [])
    assert told[0] == (0, everything)
    assert told[-len(layers) :] == [(everything - left, everything) for left in reversed(range(len(layers)))]
    assert sorted(told) == told
    passes = sum(len(layer.passes) for layer in layers)
    assert [row.way for row in rows].count(VENDOR) == [row.way for row in rows].count(AUTO) == passes


@pytest.mark.parametrize("at", [0, 2])
def test_the_user_may_end_it_early(tmp_path, monkeypatch, at):
    """Layers that were measured whole are told; where there is none, the command just ends."""
    original, begun = conv_module._bench_layer, []

    def bench_layer(layer, *others):
        begun.append(layer.names[0])
        rows = original(layer, *others)
        if len(begun) > at:
            raise KeyboardInterrupt
        return rows

    monkeypatch.setattr(conv_module, "_bench_layer", bench_layer)
    words = ["bench", "conv", "yolov8n-cls.yaml", "imgsz=32", "batch=1", "engine=gemm", "--quick", f"out={tmp_path}"]
    done = CliRunner().invoke(app, words)
    assert not torch.backends.cudnn.benchmark
    if at == 0:
        assert done.exit_code == 130
        assert list(tmp_path.iterdir()) == []
        return
    assert done.exit_code == 1
    assert "interrupted: 2 of" in done.output
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".png"]
    with (tmp_path / "conv-yolov8n-cls-fp32-nchw-b1-32-part.csv").open() as file:
        assert {row["layer"] for row in csv.DictReader(file)} == set(begun[:2])
