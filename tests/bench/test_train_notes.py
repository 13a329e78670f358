"""What `bench train` says below its tables, and what it leaves out."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from yolo_rocm.bench import train_notes, train_table
from yolo_rocm.bench.train import TrainBench
from yolo_rocm.cli.main import app

from .made_ways import made

pytestmark = pytest.mark.once
STAR, NHWC, LOSS = "*: what the preset generic runs.", "NHWC: channels_last.", "Loss: after two steps."


def footnote(*compared):
    return train_notes.footnote(train_table.rows(compared, amp=False))


def test_only_what_is_there_is_explained():
    stock, off, ours = (made(kind, False, [2.0], 10.0) for kind in ("stock", "vendor off", "ours"))
    said = footnote(stock)
    assert (STAR in said, NHWC in said, LOSS in said) == (False, False, True)
    assert "the faster layout of stock, in time and in memory; those of times" in said
    assert said.count("vendor off") == 0
    assert "faster layout of vendor off, in" in footnote(off)
    assert "faster layout of stock and of vendor off, in" in footnote(stock, off)
    assert (STAR in footnote(ours), "Ratios" in footnote(ours)) == (True, False)
    assert NHWC in footnote(stock, made("ours", True, [2.0], 10.0))
    stock.peaks = []
    assert "faster layout of stock; those" in footnote(stock)
    stock.error = "gone"
    assert LOSS not in footnote(stock)


def test_compiled_ways_are_an_exception_where_they_have_run():
    stock, compiled = made("stock", False, [2.0], 10.0), made("stock + compile", False, [2.0], 10.0)
    compiled.compiled = True
    assert "of each round, but for what is compiled." in footnote(stock, compiled)
    compiled.error = "not runnable here"
    assert "of each round." in footnote(stock, compiled)


@pytest.mark.parametrize("kinds", [("stock",), ("stock", "vendor off"), ("ours lean",)])
def test_nothing_is_summed_up_of_what_was_not_asked_for(kinds):
    compared = [made(kind, False, [2.0], 10.0) for kind in kinds]
    assert train_table.summary(compared, train_table.rows(compared, amp=False)) == ""


def test_the_summary_says_what_has_not_run():
    stock, ours = made("stock", False, [], 1.0), made("ours", False, [2.0], 1.0)
    said = "ours NCHW, as the preset runs it, 2.0 ms a step"
    assert train_table.summary([ours], train_table.rows([ours], amp=False)) == said
    assert train_table.summary([stock, ours], train_table.rows([stock, ours], amp=False)) == f"{said}: no peer has run"
    ours.of_preset, ours.channels_last = False, True  # on a CPU, where the layout of the preset has failed
    assert train_table.summary([ours], train_table.rows([ours], amp=False)) == "ours channels_last, 2.0 ms a step"


def test_on_a_cpu_the_slower_layout_is_that_of_the_preset():
    compared = [made("ours", False, [3.0], 1.0), made("ours", True, [2.0], 1.0)]
    assert [row.of_preset for row in train_table.rows(compared, amp=False)] == [False, True]
    compared[1].of_preset = False
    assert [row.of_preset for row in train_table.rows(compared, amp=False)] == [True, False]


def test_ways_in_another_layout_than_the_preset_are_named():
    compared = [made("ours", False, [3.0, 1.0, 3.0], 1.0), made("ours", True, [2.0], 1.0)]
    compared += [made(kind, False, [2.0], 1.0) for kind in ("ours lean", "ours + graph", "stock + compile")]
    for way in compared[2:]:
        way.follows = "stock" if way.kind.startswith("stock") else "ours"
    assert train_notes.warnings(compared, 3) == [
        "ours lean, ours + graph: measured in NCHW, in which ours had its fastest step until then, while the row of "
        "the preset is channels_last by all rounds. Compare with ours NCHW."
    ]
    compared[2].error, compared[3].channels_last = "gone", True
    assert train_notes.warnings(compared, 3) == train_notes.warnings(compared[:1], 3) == []


@pytest.mark.parametrize(("rounds", "ways", "told"), [(1, 2, True), (2, 2, True), (3, 2, False), (1, 1, False)])
def test_ratios_of_single_steps_are_called_so(rounds, ways, told):
    compared = [made(kind, False, [2.0], 1.0) for kind in ("stock", "ours")][:ways]
    lines = [line for line in train_notes.warnings(compared, rounds) if "single steps" in line and "steps=30" in line]
    assert bool(lines) == told


def test_the_command_leaves_out_what_was_not_asked_for(tmp_path, monkeypatch):
    def run(self, compared, progress):
        for way in compared:
            way.turns_ms, way.losses = [[2.0]], [5.0, 4.0, 3.0]

    monkeypatch.setattr(TrainBench, "run", run)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = ["bench", "train", "imgsz=64", "batch=2", "steps=3", "ways=stock", f"out={tmp_path}"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    told = " ".join(done.stdout.split())
    assert "stock NHWC 2.0 1.000x" in told
    for absent in ("what the preset", "faster layout of vendor off", "stock and of", "ours", "single steps"):
        assert absent not in told
