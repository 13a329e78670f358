"""What is asked of YOLO objects before they predict."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.ultralytics_hooks import predicting

from ..tables import each_row


@each_row(
    ("stride", "given", "size"),
    [
        (8, 100, 128),  # as weights round; an exported model of stride 8 alone would take 104
        (64, 100, 128),
        (64, 130, 192),
        (32, [100, 64], [128, 64]),
        (32, None, 320),
        (32, "640", "640"),
    ],
)
def test_image_sizes_are_rounded_as_for_weights(stride, given, size):
    yolo = SimpleNamespace(model=SimpleNamespace(stride=torch.tensor([8.0, float(stride)])), overrides={"imgsz": 320})
    assert predicting.size_of(yolo, given) == size


@pytest.mark.parametrize("stride", [64, torch.tensor(64), [64], torch.tensor([])], ids=str)
def test_a_stride_may_be_a_number(stride):
    """As SAM's predictor leaves it at its network."""
    yolo = SimpleNamespace(model=SimpleNamespace(stride=stride), overrides={})
    assert predicting.size_of(yolo, 65) == (128 if str(stride) != "tensor([])" else 96)


def test_a_model_that_tells_no_stride_and_no_size():
    assert predicting.size_of(SimpleNamespace(model="best.onnx", overrides={})) == 640
