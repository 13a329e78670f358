"""Fixtures of the loader tests."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch


@pytest.fixture
def generators_as_found():
    """Put the generators and torch's determinism back after a test."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    switches = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = switches
    torch.use_deterministic_algorithms(False)
