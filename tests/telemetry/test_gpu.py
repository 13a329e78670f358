"""Sources on a GPU, NVIDIA or AMD; skipped where there is none."""

from __future__ import annotations

import pytest
import torch

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
