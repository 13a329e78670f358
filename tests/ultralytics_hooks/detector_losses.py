"""Losses of a small detector with their gradients, and where tests of them run."""

from __future__ import annotations

import functools

import pytest
import torch

from yolo_rocm.engines.measure import relative_error
from yolo_rocm.ultralytics_hooks import probes, train_steps

known = pytest.mark.skipif(bool(probes.missing(probes.FUSED_LOSSES)), reason="another release has another loss")
interpreted = pytest.mark.usefixtures("interpreting")


@functools.lru_cache
def detector(name="yolov8n.yaml"):
    torch.manual_seed(0)
    return train_steps.detector(name)


def step(model, amp=False, images=1, seed=0):
    """Return the loss of a batch and the gradients of what the network predicts; the criterion is made anew."""
    batch = train_steps.made_batch(model, images, 64, torch.Generator().manual_seed(seed))
    model.criterion = None
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16, enabled=amp):
        predicted = model(batch["img"])
        leaves = {}

        def leaf(name, value):
            if isinstance(value, dict):
                return {key: leaf(f"{name}.{key}", each) for key, each in value.items()}
            if isinstance(value, torch.Tensor) and value.requires_grad:
                leaves[name] = value.detach().requires_grad_()
                return leaves[name]
            return value

        total = train_steps.loss_of_predicted(model, batch, leaf("", predicted))
    total.backward()
    return {"loss": total.detach(), **{name: each.grad for name, each in leaves.items() if each.grad is not None}}


def assert_same(found, expected, allowed=1e-5):
    assert found.keys() == expected.keys()
    errors = {name: relative_error(found[name], expected[name]) for name in expected}
    assert max(errors.values()) < allowed, errors
    assert len(errors) > 2
