"""Sources and sampled times on a GPU, NVIDIA or AMD; skipped where there is none."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from yolo_rocm.conv.seam import patched
from yolo_rocm.telemetry.bottleneck import SETS_THE_PACE
from yolo_rocm.telemetry.launch_timer import LaunchTimer
from yolo_rocm.telemetry.reading import merged
from yolo_rocm.telemetry.sources import sources_for
from yolo_rocm.telemetry.steps import LAYERS, SampledSteps

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICE = torch.device("cuda", 0)


def test_the_sources_agree_with_torch():
    held = torch.empty(2**28, dtype=torch.uint8, device=DEVICE)
    reading = merged(source.read() for source in sources_for(DEVICE))
    assert reading.torch_reserved_mb >= held.numel() / 2**20
    assert reading.vram_used_mb >= reading.torch_reserved_mb
    total = torch.cuda.get_device_properties(DEVICE).total_memory / 2**20
    assert reading.vram_total_mb == pytest.approx(total, rel=0.1)  # the right card


def test_sampled_steps_are_timed_by_events():
    model = nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1)).to(DEVICE)
    x = torch.randn(16, 8, 64, 64, device=DEVICE)
    steps = SampledSteps()
    steps.epoch_starts()
    with patched(("cuda",), "gemm") as report:
        for _ in range(7):
            if steps.batch_starts() == LAYERS:
                steps.begin(report, model, DEVICE)
            model(x).square().mean().backward()
            steps.batch_ends()
        torch.cuda.synchronize()
        rows = {row.name: row.times_ms for row in report.layers()}
    assert report.times.step()["steps"] == [5, 6, 7]
    assert set(rows) == {"0", "2"}
    assert set(rows["0"]) == {"forward", "grad_weight"}
    assert set(rows["2"]) == {"forward", "grad_input", "grad_weight"}
    total = sum(sum(times.values()) for times in rows.values())
    assert 0 < total < 1.5 * report.times.step()["step_ms"]


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
