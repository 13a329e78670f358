"""Which way is faster, by what was measured in turns."""

from __future__ import annotations

import pytest

from yolo_rocm.bench.faster import faster, settle_layout, time_ratio
from yolo_rocm.bench.way import Way

from .made_ways import made

pytestmark = pytest.mark.once


def test_of_two_rounds_nobody_is_faster_for_being_named_first():
    """The mean of 1.25 and 0.82 is above 1, and so is that of 0.8 and 1.22."""
    first, second = (made("stock", last, [1.0], 10.0) for last in (False, True))
    first.turns_ms, second.turns_ms = [[10.0], [10.0]], [[8.0], [12.2]]
    assert time_ratio(first, second) == pytest.approx((1.25 / 1.22) ** 0.5)
    assert time_ratio(first, second) * time_ratio(second, first) == pytest.approx(1.0)
    assert faster([first, second], "stock") is faster([second, first], "stock") is second


def test_a_way_that_has_not_run_is_neither_faster_nor_compared():
    ran, failed = made("stock", False, [2.0], 10.0), made("stock", True, [1.0], 10.0)
    failed.error = "gone"
    assert faster([ran, failed], "stock") is ran
    assert faster([failed], "stock") is faster([ran], "ours") is None
    assert time_ratio(ran, failed) is time_ratio(failed, ran) is None


@pytest.mark.parametrize(("nchw", "last", "layout"), [(2.0, 1.0, True), (1.0, 2.0, False), (None, 3.0, True)])
def test_a_way_without_a_layout_takes_that_of_the_faster_one_it_follows(nchw, last, layout):
    compared = [
        made("ours", False, [] if nchw is None else [nchw], 1.0),
        made("ours", True, [last], 1.0),
        Way("ours lean", None, follows="ours"),
        Way("stock + compile", None, follows="stock"),
    ]
    for way in compared:
        settle_layout(way, compared)
    assert [way.channels_last for way in compared] == [False, True, layout, True]


def test_a_host_that_is_slow_for_some_steps_does_not_choose_the_layout():
    compared = [made("ours", last, [1.0], 10.0) for last in (False, True)]
    compared[0].turns_ms, compared[1].turns_ms = [[35.0, 36.0, 35.0]], [[45.0, 29.0, 47.0]]
    way = Way("ours lean", None, follows="ours")
    settle_layout(way, compared)
    assert way.channels_last
