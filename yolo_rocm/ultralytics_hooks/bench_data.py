"""The training data set and loader of a trainer without a trainer, for measuring how fast batches are loaded."""

from __future__ import annotations

from typing import Any

from ..errors import StackError
from .loaders import loaders_built_by
from .probes import BENCH_LOADER, missing


def training_data(data: str, imgsz: int, batch: int, images: int | None = None) -> Any:
    """Build the training data set of a detection task as a trainer does.

    Args:
        data: A data set's YAML.
        imgsz: Size of the images.
        batch: Size of the batches.
        images: Pretend that there are so many images, by repeating the list of those there are.
    """
    if missing(BENCH_LOADER):
        raise StackError(f"this Ultralytics cannot be measured: {'. '.join(missing(BENCH_LOADER))}.")
    from ultralytics.cfg import get_cfg
    from ultralytics.data.build import build_yolo_dataset
    from ultralytics.data.utils import check_det_dataset

    described = check_det_dataset(data)
    cfg = get_cfg(overrides={"task": "detect", "imgsz": imgsz, "batch": batch})
    dataset = build_yolo_dataset(cfg, described["train"], batch, described, mode="train")
    if images is not None and images > len(dataset.labels):
        _repeat(dataset, images)
    return dataset


def _repeat(dataset: Any, count: int) -> None:
    have = len(dataset.labels)
    order = [i % have for i in range(count)]
    # Copies, as reading them from disk would make: lists that share their items pickle to next to nothing.
    labels = [{k: v.copy() if hasattr(v, "copy") else v for k, v in dataset.labels[i].items()} for i in order]
    dataset.labels, dataset.ni = labels, count
    for name in ("im_files", "npy_files", "label_files"):
        if isinstance(getattr(dataset, name, None), list):
            setattr(dataset, name, [getattr(dataset, name)[i] for i in order])
    dataset.ims, dataset.im_hw0, dataset.im_hw = [None] * count, [None] * count, [None] * count


def training_loader(dataset: Any, batch: int, workers: int, policy: Any = None) -> Any:
    """Build a training loader as a trainer does: Ultralytics' own, or one that follows a policy."""
    from ultralytics.data.build import build_dataloader

    with loaders_built_by(policy):
        return build_dataloader(dataset, batch, workers, shuffle=True)
