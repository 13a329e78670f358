"""YOLO objects are made of the class that `yolo` takes for a file."""

from __future__ import annotations

import pytest

from yolo_rocm.ultralytics_hooks import models

from ..tables import each_row

pytestmark = pytest.mark.once

KINDS = {
    "sam_b.pt": "SAM", "sam2_b.pt": "SAM", "sam2.1_l.pt": "SAM", "sam3.pt": "SAM", "mobile_sam.pt": "SAM",
    "FastSAM-s.pt": "FastSAM", "weights/FastSAM-x.pt": "FastSAM", "yolo_nas_s.pt": "NAS", "rtdetr-l.pt": "RTDETR",
    "rtdetr-l.yaml": "RTDETR", "yolov8n-rtdetr.yaml": "RTDETR", "yolo11n.pt": "YOLO",
    "sam_b/best.pt": "YOLO", "my_sam_7.pt": "YOLO",
}  # fmt: skip


@pytest.fixture
def stand_ins(monkeypatch):
    """Put classes that say their name and arguments in the place of Ultralytics'; no weights can be loaded here."""
    import ultralytics

    for kind in {*KINDS.values()}:
        monkeypatch.setattr(ultralytics, kind, lambda *words, kind=kind, **given: (kind, words, given), raising=False)
    monkeypatch.setattr("yolo_rocm.ultralytics_hooks.models.check_weights", lambda model: None)


@each_row(("model", "kind"), KINDS.items())
def test_a_file_is_loaded_by_the_class_that_yolo_takes_for_it(stand_ins, model, kind):
    task = {"task": "detect"} if kind == "YOLO" else {}  # the others know theirs
    assert models.load_model(model, "detect") == (kind, (model,), task)
