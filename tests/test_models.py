"""Every family of models that builds without a download: one training step on the sick vendor, held against torch."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_flatten

from yolo_rocm import ultralytics_hooks as hooks
from yolo_rocm.conv.seam import patched

from .sick_vendor import sick_vendor

FAMILIES = [
    "yolov3-tiny",
    "yolov5n",
    "yolov6n",
    "yolov8n",
    "yolov8n-ghost",
    "yolov8n-p2",
    "yolov9t",
    "yolov10n",
    "yolo11n",
    "yolo12n",
    "yolo26n",
    "yolo11n-seg",
    "yolo11n-pose",
    "yolo11n-obb",
    "yolo26n-seg",
    "yolo26n-sem",
    "yolo26n-depth",
    "yolo26n-pose",
    "yolo26n-obb",
    "yolo26n-cls",
    "yolov8n-rtdetr",
    "yolov8n-world",
    "yolov8n-worldv2",
    "yoloe-v8n",
    "yoloe-11n-seg",
]


def step(model: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Run forward and backward from the same state; return all gradients in one vector."""
    torch.manual_seed(1)  # RT-DETR draws its queries
    outputs = [out for out in tree_flatten(model(images))[0] if isinstance(out, torch.Tensor) and out.requires_grad]
    model.zero_grad()
    sum(out.float().square().mean() for out in outputs).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).double()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_step_has_the_gradients_of_torch(name):
    try:
        model = hooks.torch_module(f"{name}.yaml").train()
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
    error = (got - wanted).norm() / wanted.norm()
    assert error < 2e-3, f"gradients differ by {error:.1e}"
