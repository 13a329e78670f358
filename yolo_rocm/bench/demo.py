"""`yolo-rocm demo`: the whole product on made data, on whatever device there is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ..api import run_training
from ..hardware import detect
from .demo_data import make_data

IMAGES: Final = 96
SIZE: Final = 96
EPOCHS: Final = 30


def make_demo_data(folder: Path, progress: Callable[[int, int], None]) -> Path:
    """Make the demo's images and labels, calling `progress` with (done, all)."""
    return make_data(folder / "data", images=IMAGES, size=SIZE, progress=progress)


def run_demo(folder: Path, data: Path, epochs: int, preset: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Train a nano model and say accuracy, speed, what was patched and where the results are.

    Without a GPU the package's own convolutions serve the CPU, so that the demo shows the product and not torch.

    Args:
        folder: Where results go.
        data: The data set, from `make_demo_data`.
        epochs: Epochs to train.
        preset: Preset to use.
        say: Prints a line.

    Returns:
        The same as data.
    """
    # Not torch.cuda.is_available(): it would start the GPU runtime before the preset has set its variables.
    on_gpu = detect().gpu is not None
    rocm: dict[str, Any] = {} if on_gpu else {"conv": {"engine": "gemm", "devices": ["cpu"]}}
    started = time.perf_counter()
    outcome = run_training(
        "yolov8n.yaml",
        data,
        preset,
        rocm,
        epochs=epochs,
        imgsz=SIZE,
        batch=16,
        optimizer="AdamW",
        lr0=0.002,
        warmup_epochs=1,
        mosaic=0.0,
        close_mosaic=0,
        seed=0,
        plots=False,
        verbose=False,
        project=str((folder / "runs").resolve()),
        name="demo",
    )
    seconds = time.perf_counter() - started
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    box = outcome.result.box
    patched = outcome.report.summary() if outcome.report else "nothing, YOLO_ROCM=0"
    say(f"\nmAP50-95  {box.map:.3f} (mAP50 {box.map50:.3f}) after {epochs} epochs")
    speed = IMAGES * epochs / seconds
    say(f"speed     {speed:.0f} images/s on {device}, validation included, {seconds:.0f} s in all")
    say(f"patched   {patched}")
    say(f"results   {outcome.folder}")
    return {
        "map": float(box.map),
        "map50": float(box.map50),
        "epochs": epochs,
        "images_per_s": speed,
        "seconds": seconds,
        "device": device,
        "patched": patched,
        "folder": str(outcome.folder),
    }
