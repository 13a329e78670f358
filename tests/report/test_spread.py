"""Whether epochs of two runs differ: their ranges are apart."""

from __future__ import annotations

import pytest

from yolo_rocm.report.spread import differ, later_half, settled

from ..tables import each_row

pytestmark = pytest.mark.once


@each_row(
    ("first", "second", "expected"),
    [
        ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], True),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], False),
        ([1.0, 1.2, 1.1], [1.5, 1.9, 1.7], True),
        ([1.0, 1.2, 1.5], [1.5, 1.9, 1.7], False),  # they touch
        ([1.0, 1.2, 1.1, 60.0], [1.5, 1.9, 1.7], False),  # an epoch that something held up leaves it open
        ([1.0, 1.0], [2.0, 2.0, 2.0], False),
        ([], [2.0, 2.0, 2.0], False),
    ],
)
def test_epochs_differ_where_their_ranges_do_not_overlap(first, second, expected):
    assert differ(first, second) is expected
    assert differ(second, first) is expected


def test_the_first_epoch_warms_up():
    assert settled([9.0, 1.0, 2.0]) == [1.0, 2.0]
    assert settled([9.0]) == [9.0]
    assert settled([]) == []


def test_the_later_half_of_a_metric_counts():
    assert later_half([0.1, 0.2, 0.3, 0.4]) == [0.3, 0.4]
    assert later_half([0.1, 0.2, 0.3]) == [0.2, 0.3]
    assert later_half([0.1]) == [0.1]
    assert later_half([]) == []
