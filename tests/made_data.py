"""The demo's images, labelled for any of Ultralytics' tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml

from yolo_rocm.bench import demo_data
from yolo_rocm.bench.demo_data import CLASSES, Shape, draw, fill, splits

# Tasks whose labels are images: the folder Ultralytics looks for them in.
PLANES = {"semantic": "masks", "depth": "depth"}
FAR_MM, NEAR_MM = 4000, 1000


def make_data(folder: Path, task: str = "detect", images: int = 64, size: int = 96) -> Path:
    """Write a data set for a task and return what Ultralytics takes as `data`: a YAML file, or a folder to classify."""
    import cv2

    if task == "detect":
        return demo_data.make_data(folder, images=images, size=size)
    rng = np.random.default_rng(0)
    for split, count in splits(images).items():
        for index in range(count):
            kind = index % len(CLASSES) if task == "classify" else None
            image, shapes = draw(rng, size, kind)
            place = folder / "images" / split if kind is None else folder / split / CLASSES[kind]
            place.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(place / f"{index:04d}.jpg"), image)
            labels = folder / PLANES.get(task, "labels") / split
            labels.mkdir(parents=True, exist_ok=True)
            if task in PLANES:
                plane = np.zeros((size, size), dtype=np.uint8)  # 0 is the ground, and shapes are in front of it
                for shape in shapes:
                    fill(cv2, plane, shape, shape.kind + 1)
                depths = (FAR_MM - plane.astype(np.uint16) * NEAR_MM).astype(np.uint16)
                cv2.imwrite(str(labels / f"{index:04d}.png"), plane if task == "semantic" else depths)
            elif kind is None:
                text = "".join(f"{shape.kind} {_values(shape, size, task)}\n" for shape in shapes)
                (labels / f"{index:04d}.txt").write_text(text)
    if task == "classify":
        return folder
    names = {"semantic": ("ground", *CLASSES), "depth": ("depth",)}.get(task, CLASSES)
    more = {"pose": {"kpt_shape": [4, 3]}, "semantic": {"masks_dir": "masks"}, "depth": {"depth_scale": 1000}}
    described = {"path": str(folder.resolve()), "train": "images/train", "val": "images/val", **more.get(task, {})}
    file = folder / "data.yaml"
    file.write_text(yaml.safe_dump({**described, "names": dict(enumerate(names))}, sort_keys=False))
    return file


def _values(shape: Shape, size: int, task: str) -> str:
    corners = ((shape.centre + shape.half * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])) / size).clip(0, 1)
    values = [*corners.ravel()]
    if task == "pose":
        box = [*shape.centre / size, *[2 * shape.half / size] * 2]
        values = [*box, *np.column_stack([corners, np.full(4, 2)]).ravel()]
    return " ".join(f"{value:.6f}" for value in values)
