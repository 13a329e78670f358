"""Tables and charts of a run: which rows, in which order, and where the lines lie."""

from __future__ import annotations

import json

import pytest

from yolo_rocm.report import sections
from yolo_rocm.report.page import render
from yolo_rocm.report.run import RunData
from yolo_rocm.report.run_data import read_run

from .made_runs import change_facts, make_run

pytestmark = pytest.mark.once


def layer(name, times=None, **more):
    return {"layer": name, "engine": "gemm", "forward": "columns", "times_ms": times or {}, **more}


def a_run(tmp_path, **facts):
    return RunData(tmp_path, facts)


def test_the_slowest_layers_come_first_and_the_quickest_are_left_out(tmp_path):
    times = {"quick": 1.0, "untimed": None, "slow": 9.0, "middling": 5.0, "another": 0.0}
    rows = [layer(name, None if ms is None else {"forward": ms}) for name, ms in times.items()]
    run = a_run(tmp_path, convolutions={"layers": rows}, step={"step_ms": 20.0})
    found, left_out = sections.layer_rows(run)
    assert [row["layer"] for row in found] == ["slow", "middling", "quick", "another", "untimed"]
    assert left_out == 0
    assert [row["share"] for row in found] == [0.45, 0.25, 0.05, 0.0, None]
    assert found[0]["passes"] == [("columns", 9.0), ("", None), ("", None)]
    assert sections.layer_rows(run, most=2) == (found[:2], 3)


def test_rows_that_were_not_timed_are_marked_for_the_script(tmp_path):
    folder = make_run(tmp_path / "run", layers=4)
    convolutions = json.loads((folder / "rocm.json").read_text())["convolutions"]
    del convolutions["layers"][1]["times_ms"]
    change_facts(folder, convolutions=convolutions)
    page = render([read_run(folder)])
    assert page.count('class="untimed">') == 2  # the row and the box to tick
    assert "also 1 that no sampled step timed" in page
    assert '<th class="number" aria-sort="descending">time, ms</th>' in page
    assert read_run(folder).by_algorithm == pytest.approx(
        {"columns": 0.4 + 0.6, "shifted": 0.6 + 0.9, "pointwise": 0.4}
    )
    change_facts(folder, convolutions={"layers": [{**row, "times_ms": 0} for row in convolutions["layers"]]})
    assert "No layer of this run was timed" in render([read_run(folder)])


def test_hardware_and_stack(tmp_path):
    gpu = {"name": "RX 5600 XT", "vram_gb": 6.0, "hidden_by": "HIP_VISIBLE_DEVICES"}
    classes = [f"class {i}" for i in range(22)]
    machine = {"gpus": [gpu, {"name": "Vega"}], "torch": "other", "ram_gb": 16, "hip": None, "overlays": [], "rocm": ""}
    rows = sections.stack_rows(a_run(tmp_path, machine=machine, stack={"torch": "2.10"}, run={"classes": classes}))
    hidden = ("GPU 0", "RX 5600 XT, 6.0 GB, hidden by HIP_VISIBLE_DEVICES")
    assert rows[:-1] == [hidden, ("GPU 1", "Vega"), ("torch", "2.10"), ("ram gb", "16")]
    assert rows[-1][0] == "22 classes"
    assert rows[-1][1].endswith("class 18, class 19 and 2 more")


def test_findings_keep_their_sources(tmp_path):
    row = {"id": "no-kernels", "severity": "error", "finding": "f", "remedy": "r", "sources": ["x#1", 2, "y#2"]}
    (found,) = sections.finding_rows(a_run(tmp_path, findings=[row, 3]))
    assert found == {**row, "sources": ["x#1", "y#2"]}
    folder = make_run(tmp_path / "run")
    assert "do: do this x#1<" in render([read_run(folder)])
    change_facts(folder, findings=[])
    assert "Nothing, by the checks that need no card" in render([read_run(folder)])
    change_facts(folder, findings=None)
    assert "The doctor did not look" in render([read_run(folder)])
