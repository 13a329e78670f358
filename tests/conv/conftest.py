"""Fixtures for kernels."""

import pytest
import torch

from yolo_rocm.conv.hip import base, depthwise, gemm

from ..kernel_fixtures import engine, fresh, ieee, poisoned  # noqa: F401
from .hip import on_host


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch):
    """Launch on the CPU, on three processors, with new memory full of NaN where torch can do that."""
    monkeypatch.setattr(base, "launch_of", on_host.launch_of)
    monkeypatch.setattr(base, "prepare", on_host.launch_of)
    monkeypatch.setattr(base, "device_reason", lambda device: None)
    for module in (gemm, depthwise):
        monkeypatch.setattr(module, "processors", lambda device: 3)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(before)
