"""A small data set made from nothing: coloured discs and boxes on noise, labelled for any of Ultralytics' tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

CLASSES: Final = ("disc", "box")
TASKS: Final = ("detect", "segment", "pose", "obb", "classify", "semantic", "depth")
# Tasks whose labels are images: the folder Ultralytics looks for them in.
_PLANES: Final = {"semantic": "masks", "depth": "depth"}
_FAR_MM: Final = 4000
_NEAR_MM: Final = 1000


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
            image, labels, plane = _draw(cv2, rng, size, task, number)
            if task in _PLANES:
                place = folder / "images" / split
                _write_plane(cv2, folder / _PLANES[task] / split / f"{index:04d}.png", plane, task)
            elif number is None:
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
    elif task == "semantic":
        described.update(masks_dir=_PLANES[task], names=dict(enumerate(("ground", *CLASSES))))
    elif task == "depth":
        described.update(names={0: "depth"}, depth_scale=1000)
    file = folder / "data.yaml"
    file.write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")
    return file


def _draw(
    cv2: Any, rng: np.random.Generator, size: int, task: str, number: int | None
) -> tuple[np.ndarray[Any, Any], list[str], np.ndarray[Any, Any]]:
    """Draw one image, its labels, and the plane of its classes; `number` fixes the class of its single shape."""
    image = rng.integers(0, 60, (size, size, 3), dtype=np.uint8)
    plane = np.zeros((size, size), dtype=np.uint8)  # 0 is the ground
    labels = []
    for _ in range(1 if number is not None else int(rng.integers(1, 4))):
        kind = number if number is not None else int(rng.integers(len(CLASSES)))
        half = size * rng.uniform(0.12, 0.24)
        centre = rng.uniform(half, size - half, 2)
        corners = centre + half * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
        colour = (int(rng.integers(150, 255)), 60, 60)
        for canvas, ink in ((image, colour if kind == 0 else colour[::-1]), (plane, kind + 1)):
            if kind == 0:
                cv2.circle(canvas, tuple(int(v) for v in centre), int(half), ink, -1)
            else:
                cv2.rectangle(canvas, tuple(int(v) for v in corners[0]), tuple(int(v) for v in corners[2]), ink, -1)
        labels.append(_label(kind, corners / size, centre / size, 2 * half / size, task))
    return image, labels, plane


def _write_plane(cv2: Any, file: Path, plane: np.ndarray[Any, Any], task: str) -> None:
    """Write class numbers as they are, or depths in millimetres: shapes stand in front of the ground."""
    file.parent.mkdir(parents=True, exist_ok=True)
    depths = (_FAR_MM - plane.astype(np.uint16) * _NEAR_MM).astype(np.uint16)
    cv2.imwrite(str(file), plane if task == "semantic" else depths)


def _label(kind: int, corners: np.ndarray[Any, Any], centre: np.ndarray[Any, Any], side: float, task: str) -> str:
    box = [*centre, side, side]
    if task in ("segment", "obb"):
        values = list(corners.clip(0, 1).ravel())
    elif task == "pose":
        values = [*box, *np.column_stack([corners.clip(0, 1), np.full(4, 2)]).ravel()]
    else:
        values = box
    return " ".join([str(kind), *(f"{v:.6f}" for v in values)])
