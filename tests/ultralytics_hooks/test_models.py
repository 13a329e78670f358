"""YOLO objects are made of the class that `yolo` takes for a file."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
import torch
from ultralytics import YOLO

from yolo_rocm.ultralytics_hooks import models

from ..small_model import small_model

pytestmark = pytest.mark.once

KINDS = {
    "sam_b.pt": "SAM", "sam2_b.pt": "SAM", "sam2.1_l.pt": "SAM", "sam3.pt": "SAM", "mobile_sam.pt": "SAM",
    "FastSAM-s.pt": "FastSAM", "weights/FastSAM-x.pt": "FastSAM", "yolo_nas_s.pt": "NAS", "rtdetr-l.pt": "RTDETR",
    "rtdetr-l.yaml": "RTDETR", "yolo11n.pt": "YOLO", "sam_b/best.pt": "YOLO", "samples.pt": "YOLO",
}  # fmt: skip


@pytest.fixture
def stand_ins(monkeypatch):
    """Put classes that say their name and arguments in the place of Ultralytics'; no weights can be loaded here."""
    import ultralytics

    for kind in {*KINDS.values()}:
        monkeypatch.setattr(ultralytics, kind, lambda *words, kind=kind, **given: (kind, words, given), raising=False)
    monkeypatch.setattr("yolo_rocm.ultralytics_hooks.models.check_weights", lambda model: None)
    return ultralytics


@pytest.mark.parametrize(("model", "kind"), KINDS.items())
def test_a_file_is_loaded_by_the_class_that_yolo_takes_for_it(stand_ins, model, kind):
    task = {"task": "detect"} if kind == "YOLO" else {}  # the others know theirs
    assert models.load_model(model, "detect") == (kind, (model,), task)


def test_a_class_that_this_ultralytics_lacks_is_left_to_it(stand_ins, monkeypatch):
    monkeypatch.setitem(sys.modules, "ultralytics", types.SimpleNamespace(YOLO=stand_ins.YOLO))
    assert models.load_model("yolo_nas_s.pt")[0] == "YOLO"


def test_weights_of_another_model_may_have_sam_in_their_name(tmp_path):
    """SAM takes its own names alone."""
    weights = tmp_path / "my_sam_7.pt"
    torch.save({"model": YOLO(small_model()).model, "train_args": {}}, weights)
    loaded = models.load_model(weights)
    assert (type(loaded).__name__, Path(loaded.ckpt_path).name) == ("YOLO", "my_sam_7.pt")
    with pytest.raises(FileNotFoundError, match="my_sam_8"):
        models.load_model(tmp_path / "my_sam_8.pt")
