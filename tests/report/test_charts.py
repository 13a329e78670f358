"""Charts: which lines they have, and where those lie."""

from __future__ import annotations

import pytest

from yolo_rocm.report import charts
from yolo_rocm.report.charts import Chart, Line, of_runs
from yolo_rocm.report.drawing import drawing
from yolo_rocm.report.run_data import read_run

from ..tables import each_row
from .made_runs import make_run

pytestmark = pytest.mark.once


def line(y, x=None, name="line", run=""):
    return Line(name, [float(i) for i in range(len(y))] if x is None else x, y, run)


def shown(found):
    return {chart.title: {each.name: each.y[0] for each in chart.lines} for chart in found}


def test_speed_and_device(tmp_path):
    run = read_run(make_run(tmp_path / "run"))
    rates, waits, stages = charts.speed(run)
    assert [round(v, 1) for v in rates.lines[0].y] == [36.9, 158.4, 158.4]
    assert [round(v, 2) for v in waits.lines[0].y] == [0.83, 0.83, 0.83]  # percent
    assert {each.name: each.y[0] for each in stages.lines} == {"load": 1.0, "augment": 2.0, "collate": 0.1}
    assert shown(charts.device(run)) == {
        "GPU memory": {"in use": 4000 / 1024, "held by torch": 3500 / 1024, "card": 6128 / 1024},
        "Utilisation": {"GPU": 97, "CPU": 45},
        "Temperature": {"GPU": 60},
        "Power": {"GPU": 110},
        "Host memory": {"in use": 9000 / 1024},
    }
    assert shown(charts.learning(run)) == {
        "Training losses": {"box": 3.0, "cls": 2.0},
        "Validation losses": {"box": 4.0},
        "Metrics": {"mAP50(B)": 0.0, "mAP50-95(B)": 0.0},
    }


def test_charts_of_two_runs_have_the_lines_of_both(tmp_path):
    runs = [read_run(make_run(tmp_path / "a"), "A"), read_run(make_run(tmp_path / "b", busy=None, epochs=5), "B")]
    (rates, *_) = of_runs(charts.speed, runs)
    assert [(each.run, each.name, len(each.x)) for each in rates.lines] == [("A", "images/s", 3), ("B", "images/s", 5)]
    assert {each.run for chart in of_runs(charts.device, runs) for each in chart.lines} == {"A"}
    drawn = drawing(rates)
    assert [each["name"] for each in drawn["lines"]] == ["A images/s", "B images/s"]
    assert [each["style"] for each in drawn["lines"]] == ["line-0", "line-0 second"]


def test_long_tables_are_thinned_and_wide_ones_cut(tmp_path):
    folder = make_run(tmp_path / "run")
    names = [f"train/{i}" for i in range(9)]
    rows = [[epoch, *([""] * 9 if 500 <= epoch < 600 else [epoch] * 9)] for epoch in range(1000)]
    (folder / "results.csv").write_text("\n".join(",".join(map(str, row)) for row in [["epoch", *names], *rows]))
    losses = charts.learning(read_run(folder))[0].lines
    assert [each.name for each in losses] == ["0", "1", "2", "3", "4", "5"]
    assert len(losses[0].x) == 333  # the last row is half-written
    assert losses[0].y[:2] == [1.0, 4.0]  # means of three
    assert losses[0].y.count(None) == 33


def test_lines_lie_where_their_values_are():
    drawn = drawing(Chart("t", "epoch", [line([0.0, 10.0, None, 5.0])]))
    left, right, bottom = drawn["left"], drawn["right"], drawn["bottom"]
    third, middle = round(left + (right - left) / 3, 1), (10 + bottom) / 2
    assert drawn["lines"][0]["path"] == f"M{left}.0 {bottom}.0h0L{third} 10.0M{right}.0 {middle}h0"
    assert drawn["y_ticks"] == [(bottom, "0"), (middle, "5"), (10, "10")]
    assert [label for _, label in drawn["x_ticks"]] == ["0", "1", "2", "3"]


@each_row(
    ("values", "labels"),
    [
        ([1.0, 9.0], ["0", "5"]),  # from 0 where that costs little
        ([90.0, 100.0], ["90", "95", "100"]),
        ([3.0], ["0", "1", "2", "3"]),
        ([0.0], ["-0.5", "0", "0.5"]),
        ([0.0, 4e-5], ["0", "1e-5", "2e-5", "3e-5", "4e-5"]),
        ([117.6470588235294, 117.64705882352943], ["0", "50", "100"]),  # two roundings of one rate
    ],
    ids=str,
)
def test_ticks_are_round(values, labels):
    drawn = drawing(Chart("t", "minutes", [line(values)]))
    assert [label for _, label in drawn["y_ticks"]] == labels
    assert all(0 < y <= drawn["bottom"] for y, _ in drawn["y_ticks"])


def test_a_share_is_of_a_hundred_and_there_is_no_half_epoch():
    share = drawing(Chart("t", "epoch", [line([50.0, 51.0])], "%"))
    assert [label for _, label in share["y_ticks"]] == ["0", "50", "100"]
    assert [label for _, label in share["x_ticks"]] == ["0", "1"]
