"""The command line, as a user meets it: a process, its output and its exit code."""

from __future__ import annotations

import csv
import json
import logging
import re
import subprocess
import sys

import pytest

import yolo_rocm
from yolo_rocm.cli.main import main
from yolo_rocm.preset import restart

from ..small_model import small_model

pytestmark = pytest.mark.once


def run(*words: str, cwd=None, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "yolo_rocm", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=timeout)


@pytest.fixture
def run_here(monkeypatch, capsys, tmp_path):
    """Return a function that runs the command line in this process, which imports nothing again: code and output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging, "raiseExceptions", False)  # Ultralytics' handler holds the stream of another test
    monkeypatch.setattr(restart, "become", lambda *_: pytest.fail("it has started something"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["yolo-rocm", *words])
        with pytest.raises(SystemExit) as end:
            main()
        told = capsys.readouterr()
        return subprocess.CompletedProcess(words, end.value.code or 0, told.out, told.err)

    return run


def test_version_and_help(run_here):
    assert run("--version").stdout.strip() == f"yolo-rocm {yolo_rocm.__version__}"
    shown = run_here("--help").stdout
    assert all(word in shown for word in ("bench", "--debug"))


def test_presets_lists_and_shows_origins(run_here):
    listed = run_here("presets")
    assert listed.returncode == 0
    assert all(name in listed.stdout for name in yolo_rocm.presets())
    assert "auto here: preset" in listed.stdout
    shown = run_here("presets", "rx5600xt")
    rows = {tuple(line.split()) for line in shown.stdout.splitlines()}
    assert ("conv.engine", "gemm+hip", "configs/family/rdna1.yaml") in rows
    assert ("conv.memory_mb", "256", "configs/gpu/rx5600xt.yaml") in rows
    assert ("loader.timeout", "120", "default") in rows


def test_train_from_a_file_with_overrides(made_data, tmp_path, run_here):
    """As processes they are in test_run_command, under torchrun, and among the examples."""
    cfg = tmp_path / "cfg.yaml"
    cfg.write_text(
        f"model: {small_model()}\ndata: {made_data()}\nepochs: 3\nimgsz: 32\nbatch: 4\nworkers: 0\nplots: false\n"
        f"device: cpu\npreset: cpu\nproject: {tmp_path}\nname: run\nrocm:\n  conv: {{engine: aten, devices: [cpu]}}\n"
    )
    done = run_here("train", str(cfg), "epochs=1", "rocm.conv.engine=gemm", "--table")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "weights" / "best.pt").exists()
    assert len((tmp_path / "run" / "results.csv").read_text().splitlines()) == 2
    layers = json.loads((tmp_path / "run" / "rocm.json").read_text())["convolutions"]["layers"]
    assert len({layer["layer"] for layer in layers}) > 9
    assert {layer["engine"] for layer in layers} == {"gemm"}
    assert any(line.startswith("model.0.conv ") for line in done.stdout.splitlines())
    summary, advice = done.stdout.splitlines()[-2:]
    best, page = tmp_path / "run" / "weights" / "best.pt", tmp_path / "run" / "report.html"
    assert re.fullmatch(rf"mAP50\(B\) 0\.\d+, mAP50-95\(B\) 0\.\d+, \d+ s, {best}, {page}", summary)
    assert advice == f"next: yolo-rocm predict model={best} source=IMAGES"


def test_tune_measures_once(tmp_path, monkeypatch, run_here):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "cache"))
    words = ("tune", "yolov8n-cls.yaml", "imgsz=32", "batch=1", "engine=gemm", "layout=nhwc")
    first, second = run_here(*words, "--json"), run_here(*words)
    assert first.returncode == 0, first.stderr
    facts = json.loads(first.stdout)
    total = len(facts["convolutions"])
    assert (facts["measured"], facts["known"], facts["left"]) == (total, 0, 0)
    assert total > 10
    assert all("channels_last" in row["convolution"] for row in facts["convolutions"])
    for row in facts["convolutions"]:
        assert row["times_ms"].keys() == {"forward", "grad_input", "grad_weight"}
        assert min(row["times_ms"].values()) > 0
    assert " ms" not in second.stdout  # times are told when they are measured, and are not kept
    assert f"0 of {total} convolutions measured now, {total} known before, on cpu" in second.stdout


def test_bench_conv_writes_table_csv_and_plot(tmp_path, run_here):
    done = run_here("bench", "conv", "yolov8n-cls.yaml", "imgsz=32", "batch=1", "out=here")
    assert done.returncode == 0, done.stderr
    assert "largest workspace MB" in done.stdout
    for way in ("vendor", "vendor off", "unfold + matmul", "auto"):
        assert any(line.strip().startswith(way) for line in done.stdout.splitlines())
    (table,) = (tmp_path / "here").glob("*.csv")
    rows = list(csv.DictReader(table.open()))
    assert {"vendor", "vendor off", "unfold + matmul", "auto", "pointwise", "columns"} <= {row["way"] for row in rows}
    assert all(float(row["milliseconds"]) > 0 for row in rows)
    assert {row["command"] for row in rows} == {"yolo-rocm bench conv yolov8n-cls.yaml imgsz=32 batch=1 out=here"}
    assert list((tmp_path / "here").glob("*.png"))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("bench", "conv", "dtype=fp23"), "did you mean 'fp32'?"),
        (("bench", "conv", "bach=2"), "did you mean 'batch'?"),
        (("bench", "conv", "batch=x"), "batch must be a whole number of at least 1, such as 16, got 'x'"),
        (("bench", "conv", "imgsz=100"), "imgsz must be a multiple of 32"),
        (("bench", "conv", "engine=5"), "unknown engine '5'"),
        (("bench", "train", "amp=maybe"), "amp must be true or false, got 'maybe'"),
        (("bench", "train", "out=none.yaml/5"), "out must be a folder, got 'none.yaml/5': 'none.yaml' is a file"),
        (("bench", "memory", "coco8.yaml"), "'coco8.yaml' is no model"),
        (("bench", "predict", "coco8.yaml"), "'coco8.yaml' is no model"),
        (("bench", "loader", "coco8.yaml", "workers=x"), "workers must be a whole number"),
        (("tune", "engine=gem"), "did you mean 'gemm'?"),
    ],
    ids=str,
)
def test_wrong_words_of_bench_and_tune(words, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["yolo-rocm", *words])
    (tmp_path / "none.yaml").write_text("just words")
    with pytest.raises(SystemExit, match="1"):
        main()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert text in line
    assert [path.name for path in tmp_path.iterdir()] == ["none.yaml"]


def test_loader_prints_what_holds_here(run_here):
    done = run_here("loader", "--preset", "rx5600xt", "--json")
    data = json.loads(done.stdout)
    assert data["settings"]["context"] == "forkserver"
    assert 0 <= data["workers"] <= 4
    assert data["workers_reason"]
    shown = run_here("loader").stdout
    assert "workers reason" in shown
    assert "loader.timeout" in shown


def test_bench_loader_measures_stock_beside_ours(tmp_path, monkeypatch):
    """Two of the ways: one costs a process that imports torch and Ultralytics."""
    from typer.testing import CliRunner

    from yolo_rocm.bench import loader as measure
    from yolo_rocm.bench.demo_data import make_data
    from yolo_rocm.cli.main import app

    data, every = make_data(tmp_path / "data", images=12, size=64), measure.ways
    known = every(str(data), workers=1, context="all", imgsz=64, batch=4, epochs=1)
    assert {"stock fork", "stock spawn", "stock workers=0", "ours spawn", "ours fork", "ours workers=0"} <= set(known)
    kept = ("stock fork", "ours fork")
    monkeypatch.setattr(measure, "ways", lambda *a, **k: {n: way for n, way in every(*a, **k).items() if n in kept})
    words = ("workers=1", "context=fork", "batch=4", "imgsz=64", "epochs=1", f"out={tmp_path}")
    done = CliRunner().invoke(app, ["bench", "loader", str(data), *words])
    assert done.exit_code == 0, done.output
    assert "to stock spawn" in done.stdout
    assert "measuring loaders: 0 of 2" in done.stderr
    assert "measuring loaders: 2 of 2 in" in done.stderr
    with next(tmp_path.glob("*.csv")).open() as file:
        rows = {row["way"]: row for row in csv.DictReader(file)}
    assert tuple(rows) == kept
    assert all(not row.get("error") for row in rows.values())
    for row in rows.values():
        assert float(row["images_per_s"]) > 0
    assert rows["ours fork"]["first_batch_sha"] == rows["stock fork"]["first_batch_sha"]
    assert float(rows["ours fork"]["private_mb"]) > 0
    assert next(tmp_path.glob("*.png")).stat().st_size > 1000
    missing = CliRunner().invoke(app, ["bench", "loader", str(tmp_path / "no.yaml")])
    assert "cannot be read" in str(missing.exception)
