"""Complete Ultralytics runs on a CPU whose native convolution kernels all raise: what a broken card is to MIOpen."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import yolo_rocm

from ..sick_vendor import MESSAGE, sick, sick_vendor
from ..small_model import small_model

# Forked, for speed: a spawned worker imports torch and Ultralytics again. tests/data trains with spawned ones.
OURS = {"conv": {"engine": "gemm", "devices": ["cpu"]}, "loader": {"context": "fork"}}
QUICK = {"epochs": 2, "imgsz": 64, "batch": 4, "plots": False, "device": "cpu", "seed": 0, "verbose": False}
# Each task by the layers of its own; on the second stack those that differ most.
RUNS = [
    (small_model("segment"), "segment"),
    (small_model("classify"), "classify"),
    *(pytest.param(small_model(task), task, marks=[pytest.mark.deep, pytest.mark.once]) for task in ("pose", "obb")),
    pytest.param("yolo26n.yaml", "detect", marks=pytest.mark.deep),
]
FOUND = {"classify": "probs", "obb": "obb"}


def an_image(data: Path) -> str:
    folder = data if data.is_dir() else data.parent / "images"
    return str(sorted((folder / "val").rglob("*.jpg"))[0])


def test_stock_ultralytics_dies_on_the_sick_vendor(made_data, tmp_path):
    from ultralytics import YOLO

    yolo = YOLO(small_model())
    with sick_vendor(forward=False), pytest.raises(RuntimeError, match=MESSAGE):
        yolo.train(data=str(made_data()), project=str(tmp_path), **QUICK)


@pytest.mark.parametrize(("model", "task"), RUNS, ids=lambda value: Path(value).name)
def test_a_whole_run_on_the_sick_vendor(model, task, made_data, tmp_path):
    """Train, validate, final evaluation of the fused best.pt, standalone val, predict."""
    from ultralytics import YOLO
    from ultralytics.nn.tasks import yaml_model_load

    try:
        yaml_model_load(model)
    except FileNotFoundError:
        pytest.skip(f"this Ultralytics has no {model}")
    data = made_data(task)
    with sick_vendor():
        options = {**QUICK, "epochs": 1, "project": str(tmp_path), "name": "run"}
        metrics = yolo_rocm.train(model, data=data, preset="cpu", rocm=OURS, **options)
        best = tmp_path / "run" / "weights" / "best.pt"
        assert best.exists()
        assert len((tmp_path / "run" / "results.csv").read_text().splitlines()) == 2
        assert metrics.results_dict
        yolo = YOLO(best)
        handle = yolo_rocm.register(yolo, "cpu", OURS)
        assert yolo.val(data=str(data), imgsz=64, device="cpu", plots=False, project=str(tmp_path)).results_dict
        (result,) = yolo.predict(an_image(data), imgsz=64, device="cpu", verbose=False)
        assert getattr(result, FOUND.get(task, "boxes")) is not None
        assert set(handle.report.engines()) == {"gemm"}
        handle.remove()
        with pytest.raises(RuntimeError, match=MESSAGE):
            yolo.predict(an_image(data), imgsz=64, device="cpu", verbose=False)
    report = json.loads((tmp_path / "run" / "rocm.json").read_text())
    names = {name for name, module in yolo.model.named_modules() if isinstance(module, torch.nn.Conv2d)}
    layers = report["convolutions"]["layers"]
    reached = {row["layer"] for row in layers if row["engine"] == "gemm"}
    assert reached >= names
    assert {row["engine"] for row in layers} == {"gemm"}
    assert report["settings"]["values"]["conv.engine"] == {"value": "gemm", "origin": "rocm"}


def losses(
    data: Path, folder: Path, steps: int, patched: bool, under=nullcontext, model="yolov8n.yaml", **arguments
) -> list[float]:
    """Train, in the context that `under` returns, and return the loss of every step."""
    from ultralytics import YOLO

    yolo, seen = YOLO(model), []

    def note(trainer) -> None:
        seen.append(float(trainer.loss.detach()))
        trainer.stop = trainer.stop or len(seen) >= steps

    if patched:
        yolo_rocm.register(yolo, "cpu", OURS)
    yolo.add_callback("on_train_batch_end", note)
    # Without checkpoints: writing them takes longer than twenty steps.
    with under():
        yolo.train(data=str(data), project=str(folder), val=False, save=False, **{**QUICK, "epochs": 10, **arguments})
    return seen[:steps]


@pytest.mark.once
def test_losses_follow_stock_where_everything_is_sick(made_data, tmp_path):
    options = {"imgsz": 32, "model": small_model(), "epochs": 3}  # as many as there are steps for
    stock = losses(made_data(), tmp_path, 6, patched=False, **options)
    ours = losses(made_data(), tmp_path, 6, patched=True, under=sick, **options)
    assert len(stock) == 6
    assert ours == pytest.approx(stock, rel=1e-3)
