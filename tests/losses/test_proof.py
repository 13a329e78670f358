"""What decides whether a kernel of a loss is used."""

from __future__ import annotations

import math

import pytest
import torch

from yolo_rocm.engines.device_state import STATE
from yolo_rocm.losses import proof


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_results_that_say_nothing_decide_nothing(caplog, value):
    """Zero agrees with a kernel that writes nothing, and what is not finite differs from itself."""
    use = proof.Use("a kernel", torch.device("cpu"), torch.float32)
    nothing, something = [torch.full((3,), value)], [torch.ones(3)]
    try:
        assert not proof.prove(use, lambda: nothing, lambda: nothing)
        assert not caplog.text
        assert proof.prove(use, lambda: something, lambda: something)
    finally:
        STATE.clear()
