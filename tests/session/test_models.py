"""Families of models that build without a download: one training step on the sick vendor, held against torch."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_flatten

from yolo_rocm.conv.seam import patched
from yolo_rocm.ultralytics_hooks import models

from ..sick_vendor import sick_vendor

pytestmark = pytest.mark.once

# Those whose layers differ most.
FAMILIES = ("yolov3-tiny", "yolov9t", "yolo12n", "yolo26n-obb", "yolov8n-rtdetr", "yoloe-11n-seg")


def step(model: torch.nn.Module, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Run forward and backward from the same state; return all outputs and all gradients, each in one vector."""
    torch.manual_seed(1)  # RT-DETR draws its queries
    outputs = [out for out in tree_flatten(model(images))[0] if isinstance(out, torch.Tensor) and out.requires_grad]
    model.zero_grad()
    sum(out.float().square().mean() for out in outputs).backward()
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat([out.detach().flatten() for out in outputs]), torch.cat(gradients)


def difference(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_step_has_the_outputs_and_gradients_of_torch(name):
    try:
        model = models.torch_module(f"{name}.yaml").train()
    except FileNotFoundError:
        pytest.skip("this Ultralytics does not have the model")
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    wanted = step(model, images)
    with sick_vendor(), patched(["cpu"], "gemm") as report:
        got = step(model, images)
    assert set(report.engines()) == {"gemm"}
    assert difference(got[0], wanted[0]) < 1e-3
    # Batch statistics over a handful of values and the kinks of ReLU blow rounding up; single convolutions are held to
    # theirs in tests/conv.
    assert difference(got[1], wanted[1]) < 0.1
