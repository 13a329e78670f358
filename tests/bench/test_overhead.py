"""What report and telemetry cost: what is on in which epoch, and how differences are counted."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from yolo_rocm.bench import overhead
from yolo_rocm.bench.overhead import KINDS, OFF, TIMED, WATCHED, Epoch, Overhead, order_of
from yolo_rocm.cli.main import app
from yolo_rocm.data.wait_meter import Meter
from yolo_rocm.telemetry.steps import SampledSteps, sampled_steps
from yolo_rocm.telemetry.table import TELEMETRY_FILE

pytestmark = pytest.mark.once


def made(rounds: int = 20) -> Overhead:
    """A machine that gets slower from round to round, by far more than what is measured."""
    result = Overhead(steps=10, once_s=0.5, look_ms=0.4, timeline_s=0.01)
    for number in range(rounds):
        slow = 1 + number
        for kind, more in ((OFF, 0.0), (WATCHED, 0.02), (TIMED, 0.03)):  # watched ten times as often
            noise = 0.0005 * (-1) ** number
            result.epochs.append(Epoch(number, kind, 2.0 * slow * (1 + more + noise), slow * (1 + more)))
    return result


def test_differences_count_within_a_round():
    result = made()
    watched = result.share(WATCHED, "cpu_s")
    assert (watched.median, watched.low, watched.high) == pytest.approx((0.002, 0.002, 0.002), abs=1e-9)
    assert result.share(TIMED, "wall_s").median == pytest.approx(0.03, abs=1e-4)
    assert str(watched) == "+0.20% (+0.20% to +0.20%)"
    assert result.step_s() == pytest.approx(2.1, rel=1e-3)


def test_the_interval_is_as_wide_as_the_rounds_differ():
    result = Overhead(steps=1)
    for number, more in enumerate((-0.4, -0.2, 0.0, 0.2, 0.4)):
        result.epochs += [Epoch(number, kind, 1.0, 1.0 + more * (kind == WATCHED)) for kind in KINDS]
    share = result.share(WATCHED, "cpu_s")
    assert share.median == pytest.approx(0.0)
    assert share.low <= -0.02
    assert share.high >= 0.02


def test_a_training_pays_for_its_sampled_steps_and_once():
    result = made()
    assert sampled_steps(100, 10) == 5 + 10
    step = result.step_s("cpu_s")
    expected = 0.002 + 0.01 / (10 * step) + 15 / 1000 * 0.03 + 0.5 / (1000 * step)
    assert tuple(vars(result.whole(100)).values()) == pytest.approx((expected,) * 3)
    assert result.accounted() == pytest.approx(0.0004 * 2 + 0.01 / (10 * step), rel=1e-2)  # half the time is waiting


def test_every_kind_is_as_often_first_and_after_each_other():
    orders = [order_of(number) for number in range(6)]
    assert all(sorted(order) == sorted(KINDS) for order in orders)
    assert set(Counter(order[0] for order in orders).values()) == {2}
    assert set(Counter(pair for order in orders for pair in pairwise(order)).values()) == {2}


def test_a_training_with_each_kind_of_epoch(made_data, tmp_path, monkeypatch):
    observed, begun = [], []
    observe, begin = Meter.observe, SampledSteps.begin
    monkeypatch.setattr(Meter, "observe", lambda self, kind, *rest: (observed.append(kind), observe(self, kind, *rest)))
    monkeypatch.setattr(SampledSteps, "begin", lambda self, *rest: (begun.append(rest[1]), begin(self, *rest)))
    told = []
    result = overhead.bench_overhead(
        made_data(), tmp_path, lambda *step: told.append(step), preset="cpu", imgsz=32, batch=4, rounds=1
    )
    assert [(epoch.round, epoch.kind) for epoch in result.epochs] == [(0, kind) for kind in KINDS]
    assert all(epoch.wall_s > 0 and epoch.cpu_s > 0 for epoch in result.epochs)
    assert result.steps == 2
    assert told == [(done, 3) for done in range(4)]
    assert len(begun) == 2  # the steps of one epoch
    assert observed == ["train"] * 2  # those of another
    assert len((result.folder / TELEMETRY_FILE).read_text().splitlines()) >= 2
    assert result.once_s > 0
    assert 0 < result.timeline_s < 0.1
    overhead.write_csv(tmp_path / "table.csv", result, "command")
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["table", "json"])
def test_what_the_command_prints(words, tmp_path, monkeypatch):
    monkeypatch.setattr(overhead, "bench_overhead", lambda *_, **__: made())
    done = CliRunner().invoke(app, ["bench", "overhead", "images=2", "imgsz=32", f"out={tmp_path}", *words])
    assert done.exit_code == 0, done.output
    (table,) = tmp_path.glob("*.csv")
    if words:
        data = json.loads(done.stdout)
        assert data["shares"]["watched"]["cpu_s"]["median"] == pytest.approx(0.002)
        assert data["table"] == str(table)
    else:
        assert "+0.20% (+0.20% to +0.20%)" in done.stdout
        assert "for 100 epochs of 10 steps, 15 of which have their layers timed" in done.stdout
