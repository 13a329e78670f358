"""Charts: where lines, bands, ticks and labels lie."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from yolo_rocm.report.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, overlaid, readable
from yolo_rocm.report.page import render
from yolo_rocm.report.run_data import read_run
from yolo_rocm.report.series import Series, plain, thin

from ..tables import each_row
from .made_runs import make_run

pytestmark = pytest.mark.once


def line(y, x=None, name="line", unit=""):
    return thin(name, [float(i) for i in range(len(y))] if x is None else x, y, unit)


def test_a_chart_of_two_runs_has_both(tmp_path):
    first, second, third = overlaid(
        [Chart("t", [line([1.0, 2.0], name="a"), line([None, None], name="b")], "epoch")],
        [
            Chart("t", [line([5.0, 6.0, 7.0], name="a"), line([1.0, 1.0, 1.0], name="b")], "epoch"),
            Chart("of B alone", [line([1.0])], "epoch", percent=True),
        ],
    )
    assert [first.title, second.title, third.title] == ["t: a", "t: b", "of B alone"]
    assert [each.label for each in first.shown] == ["A a", "B a"]
    assert first.styles == [0, 1]
    assert (second.styles, [label for *_, label in second.drawing()["labels"]]) == ([1], ["B"])  # as everywhere
    assert (first.percent, third.percent) == (False, True)
    assert first.span() == (0, 2)
    assert first.limits() == (0, 8)
    page = render([read_run(make_run(tmp_path / "a")), read_run(make_run(tmp_path / "b"))])
    assert page.count("<figcaption>Images per second") == 1
    assert 'class="line line-0"' in page
    chart = page[page.index("<figcaption>Images per second") :].partition("</figure>")[0]
    assert re.findall(r'<path class="line (line-\d)"', chart) == ["line-0", "line-1"]
    assert re.findall(r'<text class="label (line-\d)"[^>]*>(\w+)<', chart) == [("line-0", "A"), ("line-1", "B")]


def test_lines_of_two_runs_that_have_no_chart_are_counted():
    many = [Chart("t", [line([1.0], name=str(i)) for i in range(8)], "epoch")]
    pairs = overlaid(many, many)
    assert [len(chart.shown) for chart in pairs] == [2] * 6
    assert [chart.left_out for chart in pairs] == [0, 0, 0, 0, 0, 2]


def test_one_line_alone_needs_no_label_and_several_have_one_each():
    assert Chart("t", [line([1.0])], "epoch").drawing()["labels"] == []
    names = ["load", "augment", "a name with far too many letters"]
    chart = Chart("t", [line([1.0, 1.0], name=name) for name in names], "epoch")
    drawing = chart.drawing()
    assert [label for *_, label in drawing["labels"]] == ["load", "augment", "a name with f\u2026"]
    assert drawing["right"] < drawing["labels"][0][0] < WIDTH - 16 * 7
    heights = sorted(y for _, y, _ in drawing["labels"])
    assert min(b - a for a, b in pairwise(heights)) >= 15
    assert drawing["ends"] == [(drawing["right"], TOP)] * 3
    assert chart.height == HEIGHT
    assert chart.styles == [0, 1, 2]


def test_a_line_that_ends_early_has_its_label_too():
    chart = Chart("t", [line([0.0, 5.0, 10.0], name="long"), line([0.0, 10.0, None], name="short")], "epoch")
    drawing = chart.drawing()
    middle = (LEFT + drawing["right"]) / 2
    assert drawing["ends"] == [(drawing["right"], TOP), (pytest.approx(middle, abs=0.1), TOP)]
    assert len(drawing["labels"]) == 2


@pytest.mark.parametrize(("last", "label", "x"), [(2.9, "seconds", 174), (3, "minutes", 3), (180, "hours", 3)])
def test_a_time_is_in_a_unit_that_is_easy_to_read(last, label, x):
    chart = readable(Chart("t", [line([1.0, 2.0], x=[0.0, last])], "minutes"))
    assert chart.x_label == label
    assert chart.span() == (0, pytest.approx(x))
    assert readable(Chart("t", [line([1.0, 2.0])], "epoch")).x_label == "epoch"


def test_a_chart_has_room_for_so_many_lines():
    chart = Chart("t", [line([1.0], name=str(i)) for i in range(8)] + [line([None], name="gap")], "epoch")
    assert len(chart.shown) == 6
    assert chart.left_out == 2
    assert Chart("t", [line([None])], "epoch").shown == []


@each_row(
    ("values", "limits"),
    [
        ([1.0, 9.0], (0, 10)),  # from 0 where that costs little
        ([90.0, 100.0], (90, 100)),
        ([5.9, 10.0], (0, 10)),
        ([6.1, 10.0], (6, 10)),
        ([3.0], (0, 3)),
        ([0.0], (0, 1)),
        ([-2.0], (-2, -1)),
        ([-1.0, 1.0], (-1, 1)),
        ([8.3, 10.3], (8, 11)),  # not 10.5, with the last tick at 10
        ([117.6470588235294, 117.64705882352943], (0, 150)),  # two roundings of one rate, once without an end
    ],
    ids=str,
)
def test_limits_are_round(values, limits):
    assert Chart("t", [line(values)], "epoch").limits() == pytest.approx(limits)


def test_lines_lie_where_their_values_are():
    drawing = Chart("t", [line([0.0, 10.0, None, 5.0])], "epoch").drawing()
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    third = LEFT + (right - LEFT) / 3
    middle = (TOP + bottom) / 2
    assert drawing["paths"] == [f"M{LEFT}.0 {bottom}.0h0L{third:.1f} {TOP}.0M{right}.0 {middle:.1f}h0"]
    assert drawing["bands"] == [""]
    assert drawing["y_ticks"] == [(bottom, "0"), (middle, "5"), (TOP, "10")]
    assert [label for _, label in drawing["x_ticks"]] == ["0", "1", "2", "3"]
    assert [x for x, _ in drawing["x_ticks"]][::3] == [LEFT, right]


def test_there_is_no_half_epoch():
    assert [label for _, label in Chart("t", [line([1.0, 2.0])], "epoch").drawing()["x_ticks"]] == ["0", "1"]
    assert "0.2" in [label for _, label in Chart("t", [line([1.0, 2.0])], "minutes").drawing()["x_ticks"]]


def test_a_chart_of_one_place_has_it_in_the_middle():
    chart = Chart("t", [line([4.0], x=[7.0])], "epoch")
    assert chart.span() == (6.5, 7.5)
    assert chart.drawing()["x_ticks"] == [((LEFT + WIDTH - RIGHT) / 2, "7")]


def test_what_was_thinned_shows_as_a_band():
    series = thin("x", [0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [0.0, 10.0, None, None, 4.0, 6.0], points=3)
    assert (series.x, series.y) == ([1.0, 5.0, 9.0], [5.0, None, 5.0])
    assert (series.low, series.high) == ([0.0, None, 4.0], [10.0, None, 6.0])
    (band,) = Chart("t", [series], "minutes").drawing()["bands"]
    assert len(re.findall("M", band)) == len(re.findall("Z", band)) == 2  # one piece on each side of the gap
    assert band.startswith(f"M{LEFT}.0 {TOP}.0L{LEFT}.0 {HEIGHT - BOTTOM}.0Z")
    data = Chart("t", [series], "minutes").data()
    assert data["span"] == (1.0, 9.0)
    assert data["lines"][0]["low"] == [0.0, None, 4.0]


def test_data_for_the_script_is_short():
    assert plain(Series("n", [1.0], [1 / 3], [1 / 3], [1 / 3], "s", "A")) == {
        "name": "A n", "unit": "s", "x": [1.0], "y": [0.3333],
    }  # fmt: skip
