"""A small data set for detection made from nothing: coloured discs and boxes on noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

CLASSES: Final = ("disc", "box")


@dataclass(frozen=True)
class Shape:
    """A disc or a box in an image: its class, its centre, and half its width, which is its height too, in pixels."""

    kind: int
    centre: np.ndarray[Any, Any]
    half: float


def make_data(
    folder: Path,
    *,
    images: int = 64,
    size: int = 96,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write a data set and return its YAML file, which Ultralytics takes as `data`.

    Args:
        folder: Where to write; created if needed.
        images: Training images; a quarter as many are made for validation.
        size: Width and height in pixels.
        seed: The same seed makes the same files.
        progress: Called with (done, all) after every image.
    """
    import cv2

    rng = np.random.default_rng(seed)
    files = [(split, index) for split, count in splits(images).items() for index in range(count)]
    for done, (split, index) in enumerate(files, 1):
        image, shapes = draw(rng, size)
        pictures, labels = (folder / kind / split for kind in ("images", "labels"))
        for place in (pictures, labels):
            place.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(pictures / f"{index:04d}.jpg"), image)
        boxes = ((shape.kind, *shape.centre / size, *[2 * shape.half / size] * 2) for shape in shapes)
        lines = (f"{kind} {' '.join(f'{value:.6f}' for value in box)}\n" for kind, *box in boxes)
        (labels / f"{index:04d}.txt").write_text("".join(lines), encoding="utf-8")
        if progress is not None:
            progress(done, len(files))
    described = {"path": str(folder.resolve()), "train": "images/train", "val": "images/val"}
    file = folder / "data.yaml"
    file.write_text(yaml.safe_dump({**described, "names": dict(enumerate(CLASSES))}, sort_keys=False), encoding="utf-8")
    return file


def splits(images: int) -> dict[str, int]:
    """Return how many images training and validation get."""
    return {"train": images, "val": max(2, images // 4)}


def draw(rng: np.random.Generator, size: int, only: int | None = None) -> tuple[np.ndarray[Any, Any], list[Shape]]:
    """Draw one image of a few shapes, or of a single one of the class `only`."""
    import cv2

    image, shapes = rng.integers(0, 60, (size, size, 3), dtype=np.uint8), []
    for _ in range(1 if only is not None else int(rng.integers(1, 4))):
        kind = int(rng.integers(len(CLASSES))) if only is None else only
        half = size * rng.uniform(0.12, 0.24)
        shapes.append(Shape(kind, rng.uniform(half, size - half, 2), half))
        colour = (int(rng.integers(150, 255)), 60, 60)
        fill(cv2, image, shapes[-1], colour if kind == 0 else colour[::-1])
    return image, shapes


def fill(cv2: Any, canvas: np.ndarray[Any, Any], shape: Shape, ink: Any) -> None:
    """Draw a shape."""
    if shape.kind == 0:
        cv2.circle(canvas, tuple(int(v) for v in shape.centre), int(shape.half), ink, -1)
    else:
        first, last = (tuple(int(v) for v in shape.centre + side * shape.half) for side in (-1, 1))
        cv2.rectangle(canvas, first, last, ink, -1)
