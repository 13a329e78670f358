"""Round numbers along an axis."""

from __future__ import annotations

import pytest

from yolo_rocm.report.axis import nice_step, tick, ticks

from ..tables import each_row

pytestmark = pytest.mark.once


@each_row(("span", "step"), [(4, 1), (10, 5), (8, 2), (100, 50), (0.3, 0.1), (21, 10), (0, 1)])
def test_steps_are_round(span, step):
    assert nice_step(span) == pytest.approx(step)


def test_ticks():
    assert ticks(0, 10) == [0, 5, 10]
    assert ticks(-1, 1) == [-1, -0.5, 0, 0.5, 1]
    assert ticks(3, 8, 5) == [3, 4, 5, 6, 7, 8]
    told = {0: "0", 0.5: "0.5", 1234.5: "1234.5", 99999: "99999", 1e5: "1e5", 2e-4: "2e-4", -3e6: "-3e6", 1e-3: "0.001"}
    assert {value: tick(value) for value in told} == told
