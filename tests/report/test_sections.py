"""Tables and charts of a run: which rows, in which order, and where the lines lie."""

from __future__ import annotations

import json

import pytest

from yolo_rocm.report import sections
from yolo_rocm.report.page import render
from yolo_rocm.report.run import RunData
from yolo_rocm.report.run_data import read_run

from ..tables import each_row
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
    many = RunData(tmp_path, {"broken_images": {str(i): 1 for i in range(99)}}, {str(i): i for i in range(999)})
    assert len(sections.broken_images(many)) == 50
    assert len(sections.argument_rows(many)) == sections.MOST_ROWS


@each_row(
    ("value", "shown"),
    [(None, "none"), ([], "none"), ({}, "none"),
     ({"a": "1", "b": "2"}, "a 1, b 2"), ({"a": 1}, '{"a": 1}'),
     (["a", "b"], "a, b"), (["ä", 1], '["ä", 1]'), ("x" * 400, "x" * 400), (True, "true"),
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
    assert "try more workers, cache=ram" in read_run(folder).verdict.sentence
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
