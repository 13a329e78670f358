"""`yolo-rocm demo`: the whole product on made data, on whatever device there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..api import run_training
from ..hardware import detect
from ..session.given import predict_command


@dataclass(frozen=True)
class Size:
    """How much a demo does: what a GPU does in seconds would take minutes on a processor.

    Attributes:
        model: Model to train.
        images: Training images.
        pixels: Their width and height.
        batch: Images of a step.
        epochs: Epochs, unless asked otherwise.
        lr0: Learning rate.
    """

    model: str
    images: int
    pixels: int
    batch: int
    epochs: int
    lr0: float


ON_GPU: Final = Size("yolov8n.yaml", images=96, pixels=96, batch=16, epochs=30, lr0=0.002)
ON_CPU: Final = Size(
    str(Path(__file__).with_name("demo_model.yaml")), images=96, pixels=64, batch=8, epochs=12, lr0=0.005
)
OURS_ON_CPU: Final = {"conv": {"engine": "gemm", "devices": ["cpu"]}}


def size_here() -> Size:
    """Return how much a demo does on this machine."""
    # Not torch.cuda.is_available(): it would start the GPU runtime before the preset has set its variables.
    return ON_CPU if detect().gpu is None else ON_GPU


def run_demo(
    folder: Path,
    data: Path,
    size: Size,
    epochs: int,
    preset: str,
    say: Callable[..., None],
    rocm: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Train a small model and say accuracy, speed, what was patched and where the results are.

    Without a GPU our own kernels compute the convolutions on the CPU, so that the demo shows the product and not torch.

    Args:
        folder: Where results go.
        data: The data set, of the images that `size` says.
        size: How much to do.
        epochs: Epochs to train.
        preset: Preset to use.
        say: Prints lines.
        rocm: Sections over the preset; without a GPU our own kernels by default.
        **arguments: More arguments of the training.

    Returns:
        The same as data.
    """
    rocm = rocm or ({} if size is ON_GPU else OURS_ON_CPU)
    started = time.perf_counter()
    # nbs: without it Ultralytics would collect the gradients of 64 images before each step, and take few steps.
    outcome = run_training(
        size.model, data, preset, rocm, epochs=epochs, imgsz=size.pixels, batch=size.batch, nbs=size.batch,
        optimizer="AdamW", lr0=size.lr0, warmup_epochs=1, mosaic=0.0, close_mosaic=0, seed=0, plots=False,
        verbose=False, project=str((folder / "runs").resolve()), name="demo",
        **arguments,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    import torch

    box = outcome.result.box
    facts: dict[str, Any] = {
        "map": float(box.map),
        "map50": float(box.map50),
        "epochs": epochs,
        "images_per_s": size.images * epochs / seconds,
        "seconds": seconds,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "patched": outcome.report.summary() if outcome.report else "nothing, YOLO_ROCM=0",
        "folder": str(outcome.folder),
    }
    say(
        "\nmAP50-95  {map:.3f} (mAP50 {map50:.3f}) after {epochs} epoch{s}".format(
            s="" if epochs == 1 else "s", **facts
        )
    )
    say(
        "speed     {images_per_s:.0f} images/s on {device}, validation included, {seconds:.0f} s in all".format(**facts)
    )
    page = Path(facts["folder"]) / "report.html"
    say("patched   {patched}\nresults   {folder}".format(**facts), f"report    {page}")
    best = Path(facts["folder"]) / "weights" / "best.pt"
    say(f"next      {predict_command(best, str(data.parent / 'images' / 'val'))}")
    return facts
