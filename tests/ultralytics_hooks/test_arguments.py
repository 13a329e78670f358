"""Data sets that are there, or that Ultralytics finds or downloads, are not refused."""

from __future__ import annotations

import pytest

from yolo_rocm.errors import MissingFileError
from yolo_rocm.ultralytics_hooks.arguments import check_data

from ..tables import each_row

pytestmark = pytest.mark.once


@each_row("name", ["mnist160", "pictures", "coco8.yaml", "ultralytics/cfg/datasets/coco8.yaml"])
def test_what_ultralytics_downloads_or_finds_is_left_to_it(name):
    check_data(name)


@each_row("name", ["coco88.yaml", "datasets/coco88.yaml", "yolov8.yaml", "default.yaml"])
def test_what_nobody_finds_is_refused(name):
    with pytest.raises(MissingFileError, match="does not exist"):
        check_data(name)
