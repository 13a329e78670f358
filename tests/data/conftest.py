"""Fixtures of the loader tests."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.data.seeding import generators_kept


@pytest.fixture
def generators_as_found():
    """Put the generators and torch's determinism back after a test."""
    switches = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    with generators_kept():
        yield
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = switches
    torch.use_deterministic_algorithms(False)
