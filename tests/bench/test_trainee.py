"""What is trained for `bench train`, step by step."""

from __future__ import annotations

import pytest

from yolo_rocm.bench import trainee
from yolo_rocm.bench.trainee import Trainee

pytestmark = pytest.mark.once


def test_overflows_are_counted_from_the_scale():
    trained = object.__new__(Trainee)
    trained._scaler = trainee._scaler(False)
    assert trained.overflows() == 0
    scaler = type("Scaler", (), {"is_enabled": lambda self: True, "get_scale": lambda self: 64.0})
    trained._scaler = scaler()
    assert trained.overflows() == 2
