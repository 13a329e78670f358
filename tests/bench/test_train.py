"""`bench train`: whole steps, way beside way; a way that computes something else is found out."""

from __future__ import annotations

import csv
import dataclasses
import json
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from typer.testing import CliRunner

from yolo_rocm.bench import train_table
from yolo_rocm.bench import ways as made_ways
from yolo_rocm.bench.train import TrainBench
from yolo_rocm.bench.way import Way
from yolo_rocm.bench.ways import ways
from yolo_rocm.cli.main import app
from yolo_rocm.conv import chunking
from yolo_rocm.conv.plan import Planner
from yolo_rocm.errors import ConfigError, DeviceLostError
from yolo_rocm.ultralytics_hooks import optimizers

from ..small_model import small_model
from ..tables import each_row

pytestmark = pytest.mark.once


def quiet(done: int, total: int, name: str) -> None:
    pass


@pytest.fixture(scope="module")
def small() -> str:
    return small_model()


@pytest.fixture(scope="module")
def bench(small):
    return TrainBench(small, batch=4, imgsz=96, amp=False, device="cpu", steps=2)


def picked(*names: str) -> list[Way]:
    return [way for way in ways("gemm") if way.name in names]


def by_name(table) -> dict[str, train_table.TrainRow]:
    return {row.way: row for row in table}


def test_every_way_takes_turns_and_computes_the_same(bench, monkeypatch):
    flags = []
    original = TrainBench._measure

    def watched(self, way):
        flags.append((way.name, torch._C._get_mkldnn_enabled(), torch.backends.cudnn.benchmark))
        original(self, way)

    monkeypatch.setattr(TrainBench, "_measure", watched)
    random = torch.random.get_rng_state()
    compared, said = ways(chosen="stock,vendor off,ours,ours lean,ours auto + vendor", on_gpu=False), []
    bench.run(compared, lambda *moment: said.append(moment))
    names, turns = [way.name for way in compared], 2 * len(compared)
    assert [name for _, _, name in said] == names + names[1:] + names[:1]
    assert [(done, total) for done, total, _ in said] == [(number, turns) for number in range(turns)]
    assert flags == [(name, name.startswith(("stock", "ours auto + vendor")), True) for _, _, name in said]
    assert not torch.backends.cudnn.benchmark
    assert torch.equal(torch.random.get_rng_state(), random)

    table = train_table.rows(compared, amp=False)
    assert train_table.failures(table) == []
    for way, row in zip(compared, table, strict=True):
        assert len(way.times_ms) == 2
        assert row.fastest_ms <= row.step_ms <= row.slowest_ms
        assert row.departure < 1e-4
        assert row.peak_mb is row.memory_to_stock is row.requested_mb is row.waited_ms is None
    assert compared[0].losses[0] > 10  # boxes are matched: without any only the classes have a loss, far below 1
    assert compared[0].losses[2] < 0.995 * compared[0].losses[0]  # and steps change it by more than is forgiven
    served = {way.name: set(way.patches[0].report.engines()) for way in compared if way.is_ours}
    assert served["ours NCHW"] == served["ours channels_last"] == {"gemm", "not reached yet"}
    problems = [problem.channels_last for way in compared[4:6] for problem in way.patches[0].report.served]
    assert set(problems) == {False, True}
    assert [row.way for row in table if row.of_preset] == ["ours NCHW"]  # on a CPU, whichever layout is faster
    assert {way.channels_last for way in compared[6:]} == {False}


@pytest.fixture
def compiles(monkeypatch):
    """What is compiled, by stand-ins: Inductor takes seconds to import."""
    calls = []
    hooks = "yolo_rocm.ultralytics_hooks.train_steps"
    monkeypatch.setattr(f"{hooks}.compiled", lambda module, device: calls.append(device) or module)
    monkeypatch.setattr(f"{hooks}.compiled_anew", nullcontext)
    monkeypatch.setattr(f"{hooks}.forget_compiled", lambda: calls.append("forgotten"))
    monkeypatch.setattr(f"{hooks}.why_not_compiled", lambda device: "")
    return calls


def test_what_is_compiled_takes_one_turn_and_what_cannot_run_here_says_why(bench, compiles, monkeypatch):
    compared = ways(chosen="stock,stock + compile")
    bench.run(compared, quiet)
    assert compiles == [torch.device("cpu"), "forgotten"]
    assert [[len(turn) for turn in way.turns_ms] for way in compared] == [[1, 1], [1, 1], [2]]
    assert [row.wrong for row in train_table.rows(compared, amp=False)] == [False] * 3
    monkeypatch.setattr("yolo_rocm.ultralytics_hooks.train_steps.why_not_compiled", lambda device: f"none for {device}")
    compared = ways(chosen="ours + compile")
    bench.run(compared, quiet)
    table = train_table.rows(compared, amp=False)
    assert (table[0].error, table[0].served) == ("not runnable here: none for cpu", "")
    assert train_table.failures(table) == []


@pytest.mark.parametrize(("steps", "rounds", "of_a_turn"), [(1, 1, 1), (16, 3, 6), (50, 10, 5)])
def test_more_steps_are_more_turns(small, monkeypatch, steps, rounds, of_a_turn):
    bench, order = TrainBench(small, batch=1, imgsz=64, amp=False, device="cpu", steps=steps), []
    assert (bench.rounds, bench.steps) == (rounds, of_a_turn)
    monkeypatch.setattr(TrainBench, "_take_turn", lambda self, way: order.append(way.name))
    bench.run(ways(chosen="stock"), quiet)
    names = ["stock NCHW", "stock channels_last"]  # each is the first one in turn
    assert order == [name for number in range(rounds) for name in (names, names[::-1])[number % 2]]


@pytest.mark.parametrize("at", [0, 3])
def test_the_user_may_end_it_early(small, tmp_path, monkeypatch, at):
    """What was measured is told; where there is nothing, the command just ends."""
    original, turns = TrainBench._take_turn, []

    def take_turn(self, way):
        turns.append(way.name)
        if len(turns) > at:
            raise KeyboardInterrupt
        original(self, way)

    monkeypatch.setattr(TrainBench, "_take_turn", take_turn)
    words = ["bench", "train", small, "imgsz=64", "batch=2", "steps=2", "ways=stock,ours", f"out={tmp_path}"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == (130 if at == 0 else 1)
    assert ("interrupted: some ways were not measured" in done.output) == (at > 0)
    assert not torch.backends.cudnn.benchmark
    if at == 0:
        assert list(tmp_path.iterdir()) == []
        return
    with (tmp_path / "train-small-fp32-b2-64.csv").open() as file:
        rows = {row["way"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["stock NCHW", "stock channels_last", "ours NCHW", "ours channels_last"]
    assert [bool(row["step_ms"]) for row in rows.values()] == [number < at for number in range(4)]
    assert [row["error"] for row in rows.values()][at:] == ["interrupted before it was measured"] * (4 - at)
    assert "has failed" not in done.output


def test_ours_is_compiled_once_and_tuned_in_between(small, compiles):
    """What is compiled calls what is planned at the time: to compile it again would take minutes."""
    bench = TrainBench(small, batch=2, imgsz=64, amp=False, device="cpu", steps=2, tune_s=0.3)
    compared = ways(chosen="ours + compile")
    bench.run(compared, quiet)
    (ours,) = compared
    assert (compiles, ours.error, len(ours.times_ms)) == ([torch.device("cpu"), "forgotten"], "", 2)
    assert ours.tuning_s > 0
    reasons = [served.plan["forward"].reason for served in ours.patches[0].report.served.values()]
    assert "fastest when measured" in reasons
    plain = picked("stock NCHW")
    bench.run(plain, quiet)
    both = zip(ours.losses, plain[0].losses, strict=False)  # from the first weights, with what was chosen
    assert all(mine == pytest.approx(other, rel=1e-3) for mine, other in both)


def changed(monkeypatch, which, change):
    """Let something else happen in each pass of ours than what is planned."""
    fitted = chunking.fitted

    def other(*args):
        bound = fitted(*args)
        return bound._replace(**{which: partial(change, getattr(bound, which))})

    monkeypatch.setattr(chunking, "fitted", other)


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_a_way_that_computes_something_else_is_wrong(bench, monkeypatch, which):
    def off(original, *args):
        result = original(*args)
        return result * 1.01 if which == "forward" else (result[0], None if result[1] is None else -result[1])

    changed(monkeypatch, which, off)
    compared = picked("stock NCHW", "ours NCHW")
    monkeypatch.setattr(bench, "rounds", 1)
    bench.run(compared, quiet)
    table = by_name(train_table.rows(compared, amp=False))
    assert not table["stock NCHW"].wrong
    assert table["ours NCHW"].wrong
    (problem,) = train_table.failures(table.values())
    assert problem.startswith("ours NCHW is wrong: its loss is ")


def test_a_lost_device_ends_the_comparison(bench, monkeypatch):
    def lost(original, *args):
        raise DeviceLostError("cuda:0 does not answer any more")

    changed(monkeypatch, "forward", lost)
    with pytest.raises(DeviceLostError):
        bench.run(picked("ours NCHW", "ours channels_last"), quiet)
    assert not torch.backends.cudnn.benchmark


def test_a_way_that_fails_is_told_and_the_others_go_on(bench, monkeypatch):
    def broken(original, *args):
        raise RuntimeError("no memory left\nfor you")

    changed(monkeypatch, "forward", broken)
    compared = picked("stock NCHW", "ours NCHW", "ours channels_last")
    bench.run(compared, quiet)
    table = by_name(train_table.rows(compared, amp=False))
    assert table["stock NCHW"].to_stock == 1.0
    assert table["ours NCHW"].step_ms is None
    assert table["ours NCHW"].error == "no memory left"
    assert len(train_table.failures(table.values())) == 2
    beside = [dataclasses.replace(table["ours NCHW"], way=f"{kind} NCHW") for kind in ("ours auto + vendor", "stock")]
    assert train_table.failures(beside) == []  # the vendor library may be sick
    assert train_table.failures([], held_mb=15.0) == []
    assert "17 MiB were still held" in train_table.failures([], held_mb=17.0)[0]
    assert train_table.summary(compared) == "ours has not run"


def test_a_way_takes_over_what_was_measured_for_another_one(small, monkeypatch):
    measured = []
    original = Planner.tune

    def tune(self, problems, *args, **named):
        measured.append(list(original(self, problems, *args, **named)))

    monkeypatch.setattr(Planner, "tune", tune)
    bench = TrainBench(small, batch=1, imgsz=64, amp=False, device="cpu", steps=1, tune_s=60.0)
    compared = [way for way in ways(chosen="ours,ours lean") if way.name != "ours channels_last"]
    bench.run(compared, quiet)
    assert [bool(problems) for problems in measured] == [True, False]
    ours, lean = ({s.problem: s.plan for s in way.patches[0].report.served.values()} for way in compared)
    assert ours == lean
    assert {plan["forward"].reason for plan in lean.values()} == {"fastest when measured"}


def test_the_command_writes_its_table_and_ends_with_1_where_a_way_is_wrong(small, tmp_path, monkeypatch):
    original = ways
    monkeypatch.setattr(
        made_ways, "ways", lambda *args, **named: [way for way in original(*args, **named) if not way.channels_last]
    )
    sizes = ["imgsz=64", "batch=2", "steps=1", "amp=true"]
    words = ["bench", "train", small, *sizes, "ways=stock,ours", f"out={tmp_path}"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "ratios are of single steps" in done.output
    assert "ours NCHW, as the preset runs it: " in done.output
    with (tmp_path / "train-small-amp-b2-64.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["way"] for row in rows] == ["stock NCHW", "ours NCHW"]
    for key in ("device", "torch", "ultralytics", "date"):
        assert rows[0][key]
    assert [row["of_preset"] for row in rows] == ["False", "True"]
    assert float(rows[1]["convolution_ms"]) > 0
    assert rows[0]["command"] == "yolo-rocm " + " ".join(words)
    assert (tmp_path / "train-small-amp-b2-64.png").stat().st_size > 5000

    monkeypatch.setattr(train_table, "_departure", lambda way, reference: float(way is not reference))
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 1
    assert "ours NCHW is wrong" in done.stderr
    shown = json.loads(done.stdout)
    assert [row["wrong"] for row in shown] == [False, True]
    assert (shown[0]["peak_mb"] is None) == (not torch.cuda.is_available())


@each_row(
    ("changed", "text"),
    [
        ({"model": "yolov8n-cls.yaml"}, "whose task is 'classify'"),
        (
            {"model": "coco8.yaml"},
            "'coco8.yaml' is no model: it has no 'backbone'. Give model= weights",
        ),
        ({"batch": 0}, "batch must be a whole number of at least 1, such as 16, got 0"),
        ({"imgsz": 32}, "imgsz must be a whole number of at least 64, such as 640, got 32"),
        ({"imgsz": 100}, "imgsz must be a multiple of 32, the stride of 'yolov8n.yaml', got 100. Give imgsz=128"),
        ({"amp": 1}, "amp must be true or false, got 1"),
        ({"tune_s": float("nan")}, "tune_s must be a number of seconds"),
    ],
    ids=str,
)
def test_wrong_arguments(changed, text):
    given = {"model": "yolov8n.yaml", "batch": 2, "imgsz": 64, "amp": False, "device": "cpu", "steps": 1}
    with pytest.raises(ConfigError, match=text):
        TrainBench(**{**given, **changed})


def test_there_is_nothing_to_compare_where_ours_is_off(monkeypatch):
    monkeypatch.setenv("YOLO_ROCM", "0")
    with pytest.raises(ConfigError, match="nothing to compare"):
        ways()


@pytest.mark.skipif(not hasattr(torch, "_fused_sgd_"), reason="torch < 2.3 has no fused SGD")
def test_ours_trains_with_the_optimizer_of_a_session(monkeypatch):
    monkeypatch.setattr(optimizers, "_DEVICES", ("cpu", "cuda"))
    bench = TrainBench("yolov8n.yaml", 1, 64, False, "cpu", 1)
    fused = {}
    for way in ways(chosen="stock,ours,ours lean"):
        with bench._trainee(way) as trainee:
            fused[way.kind] = [bool(group["fused"]) for group in trainee._optimizer.param_groups]
    assert fused == {"stock": [False], "ours": [True], "ours lean": [True]}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("amp", [False, True])
def test_on_a_gpu_every_way_has_a_peak_of_its_own(small, amp):
    bench = TrainBench(small, batch=8, imgsz=320, amp=amp, device="cuda:0", steps=2, tune_s=5.0, profiled=True)
    compared = ways(on_gpu=False)
    bench.run(compared, quiet)
    assert bench.held_mb < 1
    table = train_table.rows(compared, amp)
    assert train_table.failures(table) == []
    images = 8 * 3 * 320 * 320 * 4 / 2**20
    for way, row in zip(compared, table, strict=True):
        assert row.peak_mb > 2 * images  # the batch, and what is kept for backward
        allocated = [peak.allocated_mb for peak in way.peaks]
        assert max(allocated) < 1.02 * min(allocated)  # a turn finds nothing of the one before
        assert row.requested_mb <= row.peak_mb <= row.reserved_mb
        assert row.overflows == 0
        assert row.busy_ms > 0
        assert row.convolution_ms > row.optimizer_ms > 0
        assert row.normalisation_ms > 0
