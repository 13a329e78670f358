"""Tables and charts of a run: which rows, in which order, and where the lines lie."""

from __future__ import annotations

import json
import re

import pytest

from yolo_rocm.report import sections
from yolo_rocm.report.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, nice_step, overlaid, tick, ticks
from yolo_rocm.report.page import render
from yolo_rocm.report.run import Run
from yolo_rocm.report.run_data import read_run
from yolo_rocm.report.series import Series, plain, thin

from .made_runs import make_run
from .test_words import change_facts

pytestmark = pytest.mark.once


def line(y, x=None, name="line", unit=""):
    return thin(name, [float(i) for i in range(len(y))] if x is None else x, y, unit)


def layer(name, times=None, **more):
    return {"layer": name, "engine": "gemm", "forward": "columns", "times_ms": times or {}, **more}


def a_run(tmp_path, **facts):
    return Run(tmp_path, facts)


def test_the_slowest_layers_come_first_and_the_quickest_are_left_out(tmp_path):
    times = {"quick": 1.0, "untimed": None, "slow": 9.0, "middling": 5.0, "another": 0.0}
    rows = [layer(name, None if ms is None else {"forward": ms}) for name, ms in times.items()]
    run = a_run(tmp_path, convolutions={"layers": rows}, step={"step_ms": 20.0})
    found, left_out = sections.layer_rows(run)
    assert [row["layer"] for row in found] == ["slow", "middling", "quick", "another", "untimed"]
    assert left_out == 0
    assert [row["share"] for row in found] == [0.45, 0.25, 0.05, 0.0, None]
    found, left_out = sections.layer_rows(run, most=2)
    assert ([row["layer"] for row in found], left_out) == (["slow", "middling"], 3)


def test_a_row_of_a_layer(tmp_path):
    served = layer(
        "a", {"forward": 1.5, "grad_weight": 0.5}, problem="3x3", reason="measured", grad_weight="shifted",
        workspace_bytes={"forward": 10, "grad_input": 30, "grad_weight": None},
    )  # fmt: skip
    run = a_run(
        tmp_path, convolutions={"layers": [served, {"layer": "b", "engine": None, "reason": "has not run yet"}]}
    )
    (first, second), _ = sections.layer_rows(run)
    assert first == {
        "layer": "a",
        "problem": "3x3",
        "engine": "gemm",
        "passes": [("columns", 1.5), ("", None), ("shifted", 0.5)],
        "total": 2.0,
        "share": None,
        "workspace": 30,
        "reason": "measured",
    }
    assert (second["problem"], second["engine"], second["total"]) == ("has not run yet", "not reached", None)
    assert second["workspace"] is None


def test_rows_that_were_not_timed_are_marked_for_the_script(tmp_path):
    folder = make_run(tmp_path / "run", layers=4)
    facts = json.loads((folder / "rocm.json").read_text())
    del facts["convolutions"]["layers"][1]["times_ms"]
    change_facts(folder, **facts)
    page = render([read_run(folder)])
    assert page.count('class="untimed">') == 2  # the row and the box to tick
    assert "also 1 that no sampled step timed" in page
    assert '<th class="number" aria-sort="descending">time, ms</th>' in page
    for row in facts["convolutions"]["layers"]:
        row.pop("times_ms", None)
    change_facts(folder, **facts)
    page = render([read_run(folder)])
    assert "untimed" not in page[page.index('id="convolutions"') : page.index('id="learning"')]
    assert "No layer of this run was timed" in page


def test_time_of_a_step_by_algorithm(tmp_path):
    rows = [
        layer("a", {"forward": 1.0, "grad_input": 2.0}, grad_input="shifted"),
        layer("b", {"forward": 3.0}, grad_input="pointwise"),
        layer("a", {}, grad_input="pointwise"),  # at a shape of validation
    ]
    run = a_run(tmp_path, convolutions={"layers": rows})
    assert run.by_algorithm == ("ms", {"columns": 4.0, "shifted": 2.0})
    assert list(run.by_algorithm[1]) == ["columns", "shifted"]
    for row in rows:
        row["times_ms"] = {}
    untimed = a_run(tmp_path, convolutions={"layers": rows})
    assert untimed.by_algorithm == ("passes", {"columns": 2.0, "shifted": 1.0, "pointwise": 1.0})
    assert a_run(tmp_path).by_algorithm == ("passes", {})


def test_hardware_and_stack(tmp_path):
    gpu = {"name": "RX 5600 XT", "vram_gb": 6.0, "hidden_by": "HIP_VISIBLE_DEVICES"}
    classes = [f"class {i}" for i in range(22)]
    machine = {"gpus": [gpu, {"name": "Vega"}], "torch": "other", "ram_gb": 16, "hip": None, "overlays": [], "rocm": ""}
    rows = sections.stack_rows(a_run(tmp_path, machine=machine, stack={"torch": "2.10"}, run={"classes": classes}))
    assert rows[:-1] == [
        ("GPU 0", "RX 5600 XT, 6.0 GB, hidden by HIP_VISIBLE_DEVICES"),
        ("GPU 1", "Vega"),
        ("torch", "2.10"),
        ("memory of the host, GB", "16"),
    ]
    assert rows[-1][0] == "22 classes"
    assert rows[-1][1].endswith("class 18, class 19 and 2 more")
    (row,) = sections.stack_rows(a_run(tmp_path, run={"classes": classes[:20]}))
    assert row[1].endswith("class 19")


def test_findings_keep_their_sources(tmp_path):
    row = {"id": "no-kernels", "severity": "error", "finding": "f", "remedy": "r", "sources": ["x#1", 2, "y#2"]}
    (found,) = sections.finding_rows(a_run(tmp_path, findings=[row, 3]))
    assert found == {**row, "sources": ["x#1", "y#2"]}
    assert sections.finding_rows(a_run(tmp_path, findings=[])) == []
    assert sections.finding_rows(a_run(tmp_path)) is None
    folder = make_run(tmp_path / "run")
    assert "do: do this x#1<" in render([read_run(folder)])
    change_facts(folder, findings=[])
    assert "Nothing, by the checks that need no card" in render([read_run(folder)])
    change_facts(folder, findings=None)
    assert "The doctor did not look" in render([read_run(folder)])


def test_preset_arguments_and_broken_images(tmp_path):
    run = a_run(
        tmp_path, settings={"values": {"conv.engine": {"value": "gemm", "origin": "here"}}}, broken_images={"a.jpg": 2}
    )
    assert sections.preset_rows(run) == [("conv.engine", "gemm", "here")]
    assert sections.broken_images(run) == [("a.jpg", "2")]
    many = Run(tmp_path, {"broken_images": {str(i): 1 for i in range(99)}}, {str(i): i for i in range(999)})
    assert len(sections.broken_images(many)) == 50
    assert len(sections.argument_rows(many)) == sections.MOST_ROWS


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "none"), ([], "none"), (["a", "b"], "a, b"), (["ä", 1], '["ä", 1]'), ("x" * 400, "x" * 400), (True, "true"),
     ("x" * 401, "x" * 400 + "..."), ({"k": None}, '{"k": null}')],
    ids=repr,
)  # fmt: skip
def test_values_become_texts(value, shown):
    assert sections.text(value) == shown


def test_what_holds_itself_is_no_error():
    itself: list = []
    itself.append(itself)
    assert sections.text(itself) == "a list that cannot be shown"


def test_verdicts_of_the_loader_tell_what_it_ran_on_and_what_to_try(tmp_path):
    """A run of an earlier version that was killed has no rocm.json: its table of epochs has to do."""
    folder = make_run(tmp_path / "run", wait=0.05)
    (folder / "rocm.json").unlink()
    table = folder / "rocm_loader.csv"
    assert "try more workers, cache=disk" in read_run(folder).verdict.sentence
    lines = table.read_text().splitlines()
    words = ["CPU-bound", "data-bound: try a", "data-bound: try b"]
    told = [line.replace("GPU-bound", word) for line, word in zip(lines[1:], words, strict=True)]
    table.write_text("\n".join([lines[0], *told]) + "\n")
    run = read_run(folder)
    assert run.verdicts == tuple(words)
    assert run.compute == "CPU"
    assert run.verdict.change == "try b"
    table.write_text("\n".join(line.rpartition(",")[0] for line in ["epoch,seconds,x", "1,5,x"]) + "\n")
    assert read_run(folder).verdicts == ()
    assert read_run(folder).compute == "GPU"


def test_charts_of_speed(tmp_path):
    waits, speed, stages = sections.speed_charts(read_run(make_run(tmp_path / "run")))
    assert [round(v, 2) for v in waits.shown[0].y] == [0.83, 0.83, 0.83]  # percent
    assert [round(v, 1) for v in speed.shown[0].y] == [36.9, 158.4, 158.4]
    assert {each.name: each.y[0] for each in stages.shown} == {"load": 1.0, "augment": 2.0, "collate": 0.1}


def test_charts_of_the_device(tmp_path):
    charts = {chart.title: chart for chart in sections.device_charts(read_run(make_run(tmp_path / "run")))}
    assert [each.name for each in charts["GPU memory"].shown] == ["in use", "reserved by torch", "of the card"]
    assert [each.name for each in charts["Utilisation"].shown] == ["GPU", "CPU, all programs"]
    assert charts["Utilisation"].limits() == (0, 100)
    assert {title: chart.shown[0].unit for title, chart in charts.items()} == {
        "GPU memory": "MB", "Utilisation": "%", "Temperature": "°C", "Power": "W", "Host memory": "MB",
    }  # fmt: skip
    assert all(chart.x_label == "minutes" for chart in charts.values())


def test_groups_that_share_a_learning_rate_are_one_line(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "results.csv").write_text(
        "epoch,train/box_loss,lr/pg0,lr/pg1,lr/pg2\n1,3,0.1,0.1,0.2\n2,2,0.05,0.05,0.2\n"
    )
    losses, _, _, rates = sections.learning_charts(read_run(folder))
    assert [each.name for each in losses.shown] == ["box_loss"]
    assert [(each.name, each.y) for each in rates.shown] == [
        ("parameter group 0, parameter group 1", [0.1, 0.05]),
        ("parameter group 2", [0.2, 0.2]),
    ]


def test_a_chart_of_two_runs_has_both(tmp_path):
    chart = overlaid(
        Chart("t", [line([1.0, 2.0], name="a"), line([None, None], name="b")], "epoch", percent=True),
        Chart("t", [line([5.0, 6.0, 7.0], name="a"), line([1.0, 1.0, 1.0], name="b")], "epoch"),
    )
    assert [each.label for each in chart.shown] == ["A a", "B a", "B b"]
    assert chart.colours == [0, 0, 1]  # the same thing in the same colour
    assert chart.percent is False
    assert chart.span() == (0, 2)
    assert chart.limits() == (0, 8)
    page = render([read_run(make_run(tmp_path / "a")), read_run(make_run(tmp_path / "b"))])
    assert page.count("<figcaption>Images per second") == 1
    assert 'class="line line-0"' in page
    assert 'class="line line-0 of-B"' in page
    assert "A images/s" in page
    assert "of-B" not in render([read_run(make_run(tmp_path / "c"))]).partition("</style>")[2].partition("<script")[0]


def test_a_chart_has_room_for_so_many_lines():
    chart = Chart("t", [line([1.0], name=str(i)) for i in range(8)] + [line([None], name="gap")], "epoch")
    assert len(chart.shown) == 6
    assert chart.left_out == 2
    assert Chart("t", [line([None])], "epoch").shown == []


@pytest.mark.parametrize(
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
    ],
    ids=str,
)
def test_limits_are_round(values, limits):
    assert Chart("t", [line(values)], "epoch").limits() == pytest.approx(limits)


@pytest.mark.parametrize(("span", "step"), [(4, 1), (10, 5), (8, 2), (100, 50), (0.3, 0.1), (21, 10), (0, 1)])
def test_steps_are_round(span, step):
    assert nice_step(span) == pytest.approx(step)


def test_ticks():
    assert ticks(0, 10) == [0, 5, 10]
    assert ticks(-1, 1) == [-1, -0.5, 0, 0.5, 1]
    assert ticks(3, 8, 5) == [3, 4, 5, 6, 7, 8]
    told = {0: "0", 0.5: "0.5", 1234.5: "1234.5", 99999: "99999", 1e5: "1e5", 2e-4: "2e-4", -3e6: "-3e6", 1e-3: "0.001"}
    assert {value: tick(value) for value in told} == told


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
