"""One measurement of `yolo-rocm bench loader`, in a process of its own."""

from __future__ import annotations

import hashlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

from ..utils.child_process import answer_parent


def measure(way: dict[str, Any]) -> tuple[dict[str, Any], Callable[[], None]]:
    """Measure one way to load; see `yolo_rocm.bench.loader.ways` for what it says.

    Returns:
        What was measured, and what closes the loader.
    """
    import torch

    from ..data.policy import LoaderPolicy
    from ..data.seeding import seed_everything
    from ..data.worker_start import start_server
    from ..ultralytics_hooks import bench_data, datasets

    dataset = bench_data.training_data(way["data"], way["imgsz"], way["batch"], way.get("images"))
    seed_everything(0)
    adapter = datasets.UltralyticsAdapter(512) if way["ours"] else None
    policy = None
    if adapter is not None:
        policy = LoaderPolicy(context=way["context"] or "spawn", adapter=adapter, modules=datasets.MODULES)
    elif way["context"]:
        multiprocessing.set_start_method(way["context"], force=True)
    if way.get("ahead"):
        start_server(datasets.MODULES)
        time.sleep(way["ahead"])
    began = time.perf_counter()
    loader = bench_data.training_loader(dataset, way["batch"], way["workers"], policy)
    batches = iter(loader)
    first_batch = next(batches)
    first = time.perf_counter() - began
    digest = hashlib.sha256(first_batch["img"].numpy().tobytes()).hexdigest()[:16]
    most = way.get("batches")
    for _ in islice(batches, most):  # the first epoch fills the buffers of mosaics
        pass
    images, began = 0, time.perf_counter()
    for _ in range(way["epochs"]):
        for batch in islice(loader, most):
            images += len(batch["img"])
            batch["img"].view(-1)[::4096].sum()  # every page, as a training would: untouched ones count as the worker's
    rate = images / (time.perf_counter() - began)
    memory = [_memory(worker.pid) for worker in getattr(loader.iterator, "_workers", [])]
    result = {
        "first_batch_s": first,
        "images_per_s": rate,
        **{f"{kind}_mb": mean(row[kind] for row in memory) if memory else None for kind in ("private", "shared")},
        "first_batch_sha": digest,
        "torch": torch.__version__,
    }
    close = getattr(loader, "close", None)  # Ultralytics before 8.4.87 has no such method
    return result, close or (lambda: None)


def _memory(pid: int) -> dict[str, float]:
    """Return MiB that only this process has, and that it shares with others; from the kernel, Linux only."""
    found: dict[str, float] = {"private": 0.0, "shared": 0.0}
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        name, _, rest = line.partition(":")
        for kind in found:
            if name in (f"{kind.capitalize()}_Clean", f"{kind.capitalize()}_Dirty"):
                found[kind] += int(rest.split()[0]) / 1024
    return found


def main(way: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Measure one way; the answer is given before closing, at which workers of the stock loader may abort."""
    answer, close = measure(way)
    yield answer
    close()


if __name__ == "__main__":
    answer_parent(main)
