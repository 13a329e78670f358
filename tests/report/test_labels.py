"""Labels at the ends of lines: in order, apart, inside, and near."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from yolo_rocm.report.labels import margin, shortened, spread_out

from ..tables import each_row

pytestmark = pytest.mark.once


@each_row(
    ("wanted", "places"),
    [
        ([], []),
        ([50.0], [50.0]),
        ([-3.0], [0.0]),
        ([120.0], [100.0]),
        ([20.0, 80.0], [20.0, 80.0]),
        ([50.0, 50.0], [45.0, 55.0]),
        ([52.0, 48.0], [55.0, 45.0]),  # the upper one stays the upper one
        ([0.0, 0.0, 0.0], [0.0, 10.0, 20.0]),
        ([100.0, 100.0, 30.0], [90.0, 100.0, 30.0]),
        ([50.0, 50.0, 58.0], [42.0 + 2 / 3, 52.0 + 2 / 3, 62.0 + 2 / 3]),
    ],
)
def test_places(wanted, places):
    assert spread_out(wanted, 0, 100, 10) == pytest.approx(places)


def test_labels_are_apart_inside_and_in_order_wherever_lines_end():
    chance = random.Random(1)
    for _ in range(300):
        wanted = [chance.uniform(-20, 170) for _ in range(chance.randint(1, 11))]
        places = spread_out(wanted, 0, 150)
        order = sorted(range(len(wanted)), key=wanted.__getitem__)
        assert all(places[b] - places[a] >= 15 - 1e-9 for a, b in pairwise(order))
        assert min(places) >= 0
        assert max(places) <= 150 + 1e-9


def test_a_long_name_is_cut():
    assert shortened("mAP50-95") == "mAP50-95"
    assert shortened("x" * 40) == "x" * 14 + "\u2026"
    assert shortened("W" * 40) == "W" * 9 + "\u2026"
    assert margin(["load"]) < margin(["load", "x" * 40]) == margin(["x" * 40]) <= 140
