"""`python -m yolo_rocm.bench.memory_child SETTINGS ANSWER`: does a batch fit a card? One try, one process."""

from __future__ import annotations

from typing import Any, Final

import torch

from ..session.failures import says_out_of_memory
from ..utils.child_process import answer_parent
from .train import TrainBench
from .ways import ways

_STEPS: Final = 3  # the optimizer has its state in the second at the latest
_BLAS: Final = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDNN_STATUS_INTERNAL_ERROR")


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Take some steps and return their peak as `peak_mb`; None where they did not fit.

    Args:
        given: `model`, `batch`, `imgsz`, `amp`, `kind`, `memory_mb`, and `vram_gb` for what torch's allocator may take.
    """
    device = "cuda:0"
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, given["vram_gb"] * 2**30 / total), device)
    # What earlier runs have measured is used, as a training would.
    way = ways(memory_mb=given.get("memory_mb"), chosen=given["kind"], remember=True)[0]
    way.channels_last = True  # Ultralytics' own choice on a GPU
    sizes = {key: given[key] for key in ("model", "batch", "imgsz", "amp")}
    try:
        return {"peak_mb": TrainBench(device=device, steps=1, **sizes).peak_of(way, _STEPS).reserved_mb}
    except RuntimeError as error:
        if is_full(str(error)):
            return {"peak_mb": None}
        raise


def is_full(text: str) -> bool:
    """Return whether an error means that memory was used up."""
    return "out of memory" in text.lower() or any(word in text for word in _BLAS) or says_out_of_memory(text)


if __name__ == "__main__":
    answer_parent(main)
