"""Whole networks: what is in channels_last stays in it."""

from __future__ import annotations

from typing import Any

import torch
from ultralytics.nn.tasks import DetectionModel

from yolo_rocm.ultralytics_hooks.fused_blocks import fused_blocks

from .steps import served


def tensors(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output] if output.requires_grad else []
    parts = output.values() if isinstance(output, dict) else output
    return [tensor for part in parts for tensor in tensors(part)]


def test_what_is_in_channels_last_stays_in_it():
    """Parts of the channels, attention, and weights that lie the same way in both layouts turn nothing into NCHW."""
    torch.manual_seed(0)
    network = DetectionModel("yolo11n.yaml", nc=3, verbose=False).train()
    turned = network.to(memory_format=torch.channels_last)
    images = torch.rand(2, 3, 64, 64).to(memory_format=torch.channels_last)
    with served() as (patch, norms), fused_blocks():
        sum(tensor.sum() for tensor in tensors(turned.predict(images))).backward()
    for seen in (patch.report.served, norms.report.served):
        assert len(seen) >= 10
        assert [str(problem) for problem in seen if not problem.channels_last] == []
