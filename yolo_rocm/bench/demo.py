"""`yolo-rocm demo`: the whole product on made data, on whatever device there is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ..api import run_training
from ..hardware import detect

IMAGES: Final = 96
SIZE: Final = 96
EPOCHS: Final = 30


def run_demo(folder: Path, data: Path, epochs: int, preset: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Train a nano model and say accuracy, speed, what was patched and where the results are.

    Without a GPU our own kernels compute the convolutions on the CPU, so that the demo shows the product and not torch.

    Args:
        folder: Where results go.
        data: The data set: `IMAGES` images of `SIZE` pixels.
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
        "yolov8n.yaml", data, preset, rocm, epochs=epochs, imgsz=SIZE, batch=16, optimizer="AdamW", lr0=0.002,
        warmup_epochs=1, mosaic=0.0, close_mosaic=0, seed=0, plots=False, verbose=False,
        project=str((folder / "runs").resolve()), name="demo",
    )  # fmt: skip
    seconds = time.perf_counter() - started
    import torch

    box = outcome.result.box
    facts: dict[str, Any] = {
        "map": float(box.map),
        "map50": float(box.map50),
        "epochs": epochs,
        "images_per_s": IMAGES * epochs / seconds,
        "seconds": seconds,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "patched": outcome.report.summary() if outcome.report else "nothing, YOLO_ROCM=0",
        "folder": str(outcome.folder),
    }
    say("\nmAP50-95  {map:.3f} (mAP50 {map50:.3f}) after {epochs} epochs".format(**facts))
    say(
        "speed     {images_per_s:.0f} images/s on {device}, validation included, {seconds:.0f} s in all".format(**facts)
    )
    say("patched   {patched}\nresults   {folder}".format(**facts))
    return facts
