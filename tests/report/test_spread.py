"""Whether epochs of two runs differ: Student's t against its tables, Yuen's test by hand and by simulation."""

from __future__ import annotations

import math
import random
import re

import pytest

from yolo_rocm.report.spread import both_tails, differ, later_half, settled, typical

from ..pages import PROJECT
from ..tables import each_row

pytestmark = pytest.mark.once


@each_row(
    ("freedom", "at_95", "at_99"),
    [(1, 12.70620, 63.65674), (2, 4.30265, 9.92484), (3, 3.18245, 5.84091), (4, 2.77645, 4.60409),
     (5, 2.57058, 4.03214), (10, 2.22814, 3.16927), (30, 2.04227, 2.75000), (120, 1.97993, 2.61742),
     (1e6, 1.95997, 2.57583)],
)  # fmt: skip
def test_t_is_that_of_the_tables(freedom, at_95, at_99):
    assert both_tails(at_95, freedom) == pytest.approx(0.05, rel=2e-5)
    assert both_tails(at_99, freedom) == pytest.approx(0.01, rel=2e-5)
    assert both_tails(0, freedom) == 1


def test_t_where_it_has_a_formula():
    for t in (1e-9, 0.3, 2.0, 50.0, 1e6):
        assert both_tails(t, 1) == pytest.approx(1 - 2 * math.atan(t) / math.pi, rel=1e-9, abs=1e-15)
        assert both_tails(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9, abs=1e-12)


@each_row(
    ("first", "second", "expected"),
    [
        ([1.0], [2.0, 2.0], False),
        ([1.0, 1.0], [2.0], False),
        ([1.0, 1.0], [2.0, 2.0], True),
        ([1.0, 1.0], [1.0, 1.0], False),
        ([1.0, 1.2], [1.5, 1.9], False),  # t = 2.68, two degrees of freedom at most
        ([1.0, 1.2, 1.1], [1.5, 1.9, 1.7], True),  # t = 4.65, of 2.9
        # Winsorised to 2 2 3 4 4, of which 3 count: t = 3.2059 / sqrt(4/3) = 2.7764, with four degrees of freedom.
        ([1.0, 2.0, 3.0, 4.0, 10.0], [4.205, 5.205, 6.205, 7.205, 13.205], False),
        ([1.0, 2.0, 3.0, 4.0, 10.0], [4.207, 5.207, 6.207, 7.207, 13.207], True),
    ],
)
def test_epochs_differ_when_they_differ_by_more_than_among_themselves(first, second, expected):
    assert differ(first, second) is expected
    assert differ(second, first) is expected


def test_one_epoch_that_was_held_up_hides_nothing():
    usual = [2.00, 2.02, 1.99, 2.01, 2.00, 1.98]
    slower = [value + 0.2 for value in usual]
    assert differ([*usual, 60.0], [*slower, 9.0])
    assert typical([*usual, 60.0]) == pytest.approx(2.004)
    assert not differ([*usual, 60.0], [*usual[1:], 2.01, 2.0])


def epochs(chance: random.Random, likeness: float, count: int) -> list[float]:
    """Return values of which each has this correlation with the one before."""
    values = [chance.gauss(0, 1)]
    while len(values) < count:
        values.append(likeness * values[-1] + math.sqrt(1 - likeness**2) * chance.gauss(0, 1))
    return values


def told_by_the_docs() -> list[tuple[float, int, float]]:
    """Return the table of training.md: autocorrelation, epochs, and how many percent are told apart."""
    page = (PROJECT / "docs/training.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (0[.\d]*) \| (\d+) % \| (\d+) % \| (\d+) % \|$", page, re.MULTILINE)
    return [
        (float(likeness), count, float(share))
        for likeness, *shares in rows
        for count, share in zip((5, 10, 30), shares, strict=True)
    ]


def test_how_many_runs_that_are_alike_are_told_apart():
    table = told_by_the_docs()
    assert len(table) == 12
    chance = random.Random(0)
    for likeness, count, share in table:
        told = sum(differ(epochs(chance, likeness, count), epochs(chance, likeness, count)) for _ in range(600))
        assert told / 6 == pytest.approx(share, abs=6), (likeness, count)


def test_the_first_epoch_warms_up():
    assert settled([9.0, 1.0, 2.0]) == [1.0, 2.0]
    assert settled([9.0]) == [9.0]
    assert settled([]) == []


def test_the_later_half_of_a_metric_counts():
    assert later_half([0.1, 0.2, 0.3, 0.4]) == [0.3, 0.4]
    assert later_half([0.1, 0.2, 0.3]) == [0.2, 0.3]
    assert later_half([0.1]) == [0.1]
    assert later_half([]) == []
