"""What tests of several commands share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    from ultralytics import YOLO

    path = tmp_path_factory.mktemp("weights") / "model.pt"
    torch.save({"model": YOLO("yolov8n.yaml").model, "train_args": {}}, path)  # YOLO.save() of 8.3.0 cannot
    return path
