"""Sources and sampled times on a GPU, NVIDIA or AMD; skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.telemetry.bottleneck import SETS_THE_PACE
from yolo_rocm.telemetry.launch_timer import LaunchTimer
from yolo_rocm.telemetry.reading import merged
from yolo_rocm.telemetry.sources import sources_for

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICE = torch.device("cuda", 0)


def test_the_sources_agree_with_torch():
    held = torch.empty(2**28, dtype=torch.uint8, device=DEVICE)
    reading = merged(source.read() for source in sources_for(DEVICE))
    assert reading.torch_reserved_mb >= held.numel() / 2**20
    assert reading.vram_used_mb >= reading.torch_reserved_mb
    total = torch.cuda.get_device_properties(DEVICE).total_memory / 2**20
    assert reading.vram_total_mb == pytest.approx(total, rel=0.1)  # the right card


def launched(layers: int, size: int) -> dict[str, float]:
    """Take steps of a network of square matrices, with a wait in its loss as Ultralytics has; return a warm one."""
    weights = [torch.randn(size, size, device=DEVICE, requires_grad=True) for _ in range(layers)]
    x, result = torch.randn(size, size, device=DEVICE), {}
    optimizer = torch.optim.SGD(weights, lr=1e-9)
    for _ in range(4):
        torch.cuda.synchronize()
        timer = LaunchTimer(DEVICE)
        timer.reached()
        y = x
        for weight in weights:
            y = (y @ weight).tanh()
        timer.reached()
        loss = y.mean()
        loss.item()
        timer.reached()
        loss.backward()
        timer.reached()
        optimizer.step()
        timer.reached()
        torch.cuda.synchronize()
        result = timer.result()
    return result


def test_who_sets_the_pace_is_told_by_the_launches():
    small, large = launched(200, 8), launched(20, 8192)
    assert small["host_ms"] >= SETS_THE_PACE * small["device_ms"] > 0
    assert 0 < large["host_ms"] < SETS_THE_PACE * large["device_ms"]
