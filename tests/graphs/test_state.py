"""What a recorded pass depends on, and what of it counts as a change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from yolo_rocm.graphs.signature import InferenceSignature


@pytest.fixture
def model():
    found = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))
    found.scale, found.anchors, found.table, found.strides = 2.0, torch.ones(1), np.ones(3), [8, 16]
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model, "scale", 3.0),
        lambda model: setattr(model, "more", None),
        lambda model: setattr(model, "anchors", torch.ones(1)),  # equal, in other memory
        lambda model: setattr(model, "table", np.ones(3)),
        lambda model: setattr(model[0], "weight", nn.Parameter(model[0].weight.detach().clone())),
        lambda model: model[1].register_buffer("running_mean", model[1].running_mean.clone()),
        lambda model: model.append(nn.Identity()),
        lambda model: model.__setitem__(0, nn.Conv2d(1, 1, 1)),
    ],
)
def test_what_is_a_change_and_what_is_none(model, change):
    state = InferenceSignature(model)
    model.scale, model.strides = 1.0 + 1.0, [8, 16]
    assert state.is_same
    change(model)
    assert not state.is_same
    state.settle()
    assert state.is_same
