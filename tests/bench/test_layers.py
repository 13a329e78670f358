"""The convolutions of a model as problems."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.bench.layers import DTYPES, LAYOUTS, model_layers, named
from yolo_rocm.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "known", "wrong", "hint"), [("dtype", DTYPES, "fp61", "fp16"), ("layout", LAYOUTS, "NHWC", "nhwc")]
)
def test_a_name_that_does_not_exist_is_refused_with_those_that_do(kind, known, wrong, hint):
    assert named(kind, hint, known) is known[hint]
    with pytest.raises(ConfigError, match=rf"(?s){kind}.*{wrong}.*Allowed: .*{hint}"):
        named(kind, wrong, known)


def test_problems_are_those_of_the_batch_dtype_device_and_layout_asked_for():
    layers = model_layers("yolov8n.yaml", 64, 5, torch.float16, "cuda:0", True)
    assert {layer.problem.input_shape[0] for layer in layers} == {5}
    assert {layer.problem.dtype for layer in layers} == {torch.float16}
    assert {(layer.problem.device, layer.problem.channels_last) for layer in layers} == {("cuda:0", True)}
    assert [layer.names for layer in layers if not layer.needs_grad_input] == [("model.0.conv",)]
    assert sum(len(layer.names) for layer in layers) == 63  # the 64th, in DFL, runs in inference alone
