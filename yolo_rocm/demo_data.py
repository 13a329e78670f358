"""A small data set made from nothing: coloured discs and boxes on noise, labelled for any of Ultralytics' tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

CLASSES: Final = ("disc", "box")
TASKS: Final = ("detect", "segment", "pose", "obb", "classify")


def make_data(
    folder: Path,
    *,
    task: str = "detect",
    images: int = 64,
    size: int = 96,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write a data set and return what Ultralytics takes as `data`.

    Args:
        folder: Where to write; created if needed.
        task: One of `TASKS`; decides the label format.
        images: Training images; a quarter as many are made for validation.
        size: Width and height in pixels.
        seed: The same seed makes the same files.
        progress: Called with (done, all) after every image.

    Returns:
        The data set's YAML file, or its folder for `classify`.
    """
    import cv2

    rng = np.random.default_rng(seed)
    counts = {"train": images, "val": max(2, images // 4)}
    done, total = 0, sum(counts.values())
    for split, count in counts.items():
        for index in range(count):
            number = index % len(CLASSES) if task == "classify" else None
            image, labels = _draw(cv2, rng, size, task, number)
            if number is None:
                place = folder / "images" / split
                text = folder / "labels" / split / f"{index:04d}.txt"
                text.parent.mkdir(parents=True, exist_ok=True)
                text.write_text("".join(f"{line}\n" for line in labels), encoding="utf-8")
            else:
                place = folder / split / CLASSES[number]
            place.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(place / f"{index:04d}.jpg"), image)
            done += 1
            if progress is not None:
                progress(done, total)
    if task == "classify":
        return folder
    described: dict[str, Any] = {"path": str(folder.resolve()), "train": "images/train", "val": "images/val"}
    described["names"] = dict(enumerate(CLASSES))
    if task == "pose":
        described["kpt_shape"] = [4, 3]
    file = folder / "data.yaml"
    file.write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")
    return file


def _draw(
    cv2: Any, rng: np.random.Generator, size: int, task: str, number: int | None
) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Draw one image; `number` fixes the class of its single shape."""
    image = rng.integers(0, 60, (size, size, 3), dtype=np.uint8)
    labels = []
    for _ in range(1 if number is not None else int(rng.integers(1, 4))):
        kind = number if number is not None else int(rng.integers(len(CLASSES)))
        half = size * rng.uniform(0.12, 0.24)
        centre = rng.uniform(half, size - half, 2)
        corners = centre + half * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
        colour = (int(rng.integers(150, 255)), 60, 60)
        if kind == 0:
            cv2.circle(image, tuple(int(v) for v in centre), int(half), colour, -1)
        else:
            cv2.rectangle(image, tuple(int(v) for v in corners[0]), tuple(int(v) for v in corners[2]), colour[::-1], -1)
        labels.append(_label(kind, corners / size, centre / size, 2 * half / size, task))
    return image, labels


def _label(kind: int, corners: np.ndarray[Any, Any], centre: np.ndarray[Any, Any], side: float, task: str) -> str:
    box = [*centre, side, side]
    if task in ("segment", "obb"):
        values = list(corners.clip(0, 1).ravel())
    elif task == "pose":
        values = [*box, *np.column_stack([corners.clip(0, 1), np.full(4, 2)]).ravel()]
    else:
        values = box
    return " ".join([str(kind), *(f"{v:.6f}" for v in values)])
