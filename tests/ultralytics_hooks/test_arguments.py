"""Data sets that are there, or that Ultralytics finds or downloads, are not refused."""

from __future__ import annotations

import pytest

from yolo_rocm.errors import MissingFileError
from yolo_rocm.ultralytics_hooks.arguments import check_data

from ..tables import each_row

pytestmark = pytest.mark.once


@each_row(
    "name",
    [
        "mnist",
        "mnist160",
        "imagenet",
        "imagenet10",
        "imagenette160",
        "imagewoof320",
        "fashion-mnist",
        "cifar100",
        "caltech256",
    ],
)
def test_names_of_classification_data_sets_are_downloaded(name):
    check_data(name)


@pytest.mark.parametrize("name", ["coco8.yaml", "cfg/datasets/coco8.yaml", "ultralytics/cfg/datasets/coco8.yaml"])
def test_ultralytics_searches_its_own_folders(name):
    check_data(name)


@each_row(
    "name",
    [
        "coco88.yaml",
        "mnist.yaml",
        "datasets/coco88.yaml",
        "pictures",
        "mnistt",
        "imagenetXY",
        "yolov8.yaml",
        "default.yaml",
    ],
)
def test_what_nobody_finds_is_refused(name):
    with pytest.raises(MissingFileError, match="does not exist"):
        check_data(name)
