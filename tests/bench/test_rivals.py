"""Rivals in `bench conv`, by stand-ins: a right one, wrong ones, one that raises, one that is absent."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from yolo_rocm.bench import rivals as rivals_module
from yolo_rocm.bench.conv import AUTO, Row, bench_conv, largest_workspaces, layer_table, totals, write_csv
from yolo_rocm.bench.layers import model_layers
from yolo_rocm.bench.rival_table import reasons, rival_table, verdict_of
from yolo_rocm.bench.rivals import BACKWARD, NOT_RUNNABLE, WRONG, NotRunnableError, Rival
from yolo_rocm.conv.exactness import native_passes
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import Planner
from yolo_rocm.errors import DeviceLostError

pytestmark = pytest.mark.once


class _Right(Rival):
    name = "right"
    passes = PASSES

    def __init__(self) -> None:
        self.calls = []

    def missing(self, device):
        return ""

    def version(self):
        return f"{self.name} 1.0"

    def call(self, layer, which, operands):
        def run():
            self.calls.append((layer.problem, which))
            results = native_passes(layer.problem, operands)
            wanted = [each for each in layer.passes if each != "forward"] if which == BACKWARD else [which]
            return {each: results[each] for each in wanted}

        return run


class _Together(_Right):
    name = "together"
    passes = ("forward", BACKWARD)


class _Wrong(_Together):
    """Right but for the gradient of the weight: by more than rounding, or not a number, or of another shape."""

    name = "wrong one"

    def __init__(self, spoil=lambda grad: grad * 1.01) -> None:
        super().__init__()
        self.spoil = spoil

    def call(self, layer, which, operands):
        inner = super().call(layer, which, operands)
        return lambda: {each: self.spoil(r) if each == "grad_weight" else r for each, r in inner().items()}


class _Raises(_Right):
    name = "raises"

    def call(self, layer, which, operands):
        if which == "grad_weight":
            raise NotRunnableError("it has no such pass")
        raise TypeError("no kernel for this\nand more")


class _Absent(_Right):
    name = "absent"

    def missing(self, device):
        return f"no module on {device}"

    def call(self, layer, which, operands):
        raise AssertionError("it is absent")


@pytest.fixture(scope="module")
def layers():
    return model_layers("yolov8n-cls.yaml", 32, 1, torch.float32, "cpu")[:3]


def bench(layers, *rivals, **options):
    planner = Planner("vendor", remember=False)
    return bench_conv(layers, planner, lambda *_: None, repeats=1, quick=True, rivals=rivals, **options)


def of(rows, rival):
    return [row for row in rows if row.way == rival.name]


def test_a_right_rival_is_timed_on_every_layer_and_pass_of_a_training(layers):
    rival = _Right()
    rows = of(bench(layers, rival), rival)
    assert [(row.problem, row.pass_) for row in rows] == [(str(e.problem), p) for e in layers for p in e.passes]
    assert all(row.milliseconds > 0 and not row.verdict and not row.why for row in rows)
    assert (layers[0].problem, "grad_input") not in rival.calls  # the image needs none


def test_ours_is_measured_the_same_with_and_without_rivals(layers):
    without, beside = bench(layers), bench(layers, _Right(), _Absent())
    assert [(r.problem, r.pass_, r.way) for r in without] == [
        (r.problem, r.pass_, r.way) for r in beside if r.way not in ("right", "absent")
    ]
    assert totals(beside).keys() == {"vendor", AUTO} == totals(without).keys()
    assert largest_workspaces(beside).keys() == {AUTO}


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda grad: grad * 1.01, "grad_weight is off by 0.01 of its size"),
        (lambda grad: grad * float("nan"), "grad_weight is off by nan of its size"),
        (lambda grad: grad[:1], "grad_weight has the shape (1, "),
    ],
    ids=["off", "nan", "shape"],
)
def test_a_wrong_result_is_wrong_and_not_timed(layers, spoil, why):
    rival = _Wrong(spoil)
    rows = of(bench(layers, rival), rival)
    assert [row.verdict for row in rows if row.pass_ == BACKWARD] == [WRONG] * len(layers)
    assert all(row.milliseconds is None and row.why.startswith(why) for row in rows if row.pass_ == BACKWARD)
    assert all(row.milliseconds > 0 for row in rows if row.pass_ == "forward")
    assert [which for _, which in rival.calls].count(BACKWARD) == len(layers)  # checked once each


def test_rounding_is_not_wrong(layers):
    rival = _Wrong(lambda grad: grad * (1 + 5e-4))  # the bound of our own candidates in fp32 is 1e-3
    assert not any(row.verdict for row in of(bench(layers, rival), rival))


def test_what_raises_or_is_absent_is_not_runnable_here(layers):
    rows = bench(layers, _Raises(), _Absent())
    whys = {(row.way, row.pass_): row.why for row in rows if row.verdict == NOT_RUNNABLE}
    assert whys == {
        ("raises", "forward"): "TypeError: no kernel for this",
        ("raises", "grad_input"): "TypeError: no kernel for this",
        ("raises", "grad_weight"): "it has no such pass",
        **{("absent", which): "no module on cpu" for which in PASSES},
    }
    assert not any(row.milliseconds for row in rows if row.way in ("raises", "absent"))


def test_a_rival_that_takes_the_device_with_it_is_named(layers, monkeypatch):
    monkeypatch.setattr(rivals_module, "alive", lambda device: False)
    with pytest.raises(DeviceLostError, match=r"rival 'raises' computed forward .*without raises in rivals="):
        bench(layers, _Raises())


def test_a_rival_computes_in_ieee_fp32_and_the_setting_comes_back(layers):
    seen = []

    class Looks(_Right):
        def call(self, layer, which, operands):
            seen.append(torch.backends.cudnn.allow_tf32)
            return super().call(layer, which, operands)

    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = True
    try:
        bench(layers, Looks())
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.backends.cudnn.allow_tf32 = before
    assert set(seen) == {False}


def test_what_a_rival_is_compared_with_may_not_fit(layers, monkeypatch):
    def full(*_):
        raise torch.cuda.OutOfMemoryError("no memory")

    monkeypatch.setattr(type(rivals_module.CONVOLUTION), "run", full)
    (why,) = {row.why for row in bench(layers, _Right()) if row.way == "right"}
    assert why == "unfold, which it is compared with, fails with OutOfMemoryError: no memory"


ROW = Row("model.0", 2, "a", "forward", AUTO, 1.0, 0.0)


def test_ours_is_summed_over_what_the_rival_has_right():
    rows = [
        *(replace(ROW, problem=p, pass_=w) for p in "abc" for w in PASSES),
        replace(ROW, way="x", milliseconds=4.0),
        replace(ROW, way="x", problem="b", milliseconds=None, verdict=WRONG, why="off"),
        replace(ROW, way="x", problem="c", milliseconds=None, verdict=NOT_RUNNABLE, why="no"),
        replace(ROW, way="x", pass_=BACKWARD, milliseconds=8.0),
        *(replace(ROW, way="x", pass_=BACKWARD, problem=p, milliseconds=None, verdict=WRONG, why=p) for p in "bc"),
        replace(ROW, way="y", count=3, milliseconds=None, verdict=WRONG, why="off"),
        replace(ROW, way="z", milliseconds=None, verdict=NOT_RUNNABLE, why="none"),
    ]
    table = rival_table(rows, ["x", "y", "z"])
    numbers = [(e["rival"], e["pass"], e["layers"], e["right"], e["wrong"], e["not_runnable"]) for e in table]
    assert numbers == [
        ("x", "forward", 6, 2, 2, 2), ("x", BACKWARD, 6, 2, 4, 0), ("y", "forward", 3, 0, 3, 0),
        ("z", "forward", 2, 0, 0, 2),
    ]  # fmt: skip
    assert [(e["ms"], e["auto_ms"]) for e in table] == [(8.0, 2.0), (16.0, 4.0), (None, None), (None, None)]
    assert [verdict_of(entry) for entry in table] == ["", "", WRONG, NOT_RUNNABLE]
    assert reasons(table) == [
        "x is wrong, forward of 2, backward of 4 layers: off; 2 more reasons, layer by layer, in the CSV file",
        "x is not runnable here, forward of 2 layers: no",
        "y is wrong, forward of 3 layers: off",
        "z is not runnable here, forward of 2 layers: none",
    ]


def test_files_and_layers_show_the_verdict_in_place_of_a_time(layers, tmp_path):
    rows = bench(layers, _Wrong(), _Absent())
    (entry, *_) = layer_table(rows)
    assert entry["ways"]["absent"] == NOT_RUNNABLE
    assert entry["ways"]["wrong one"] > 0
    write_csv(tmp_path / "with.csv", rows, "cpu", "command", wrong_one="1.0")
    text = (tmp_path / "with.csv").read_text()
    assert ",wrong one,,,wrong,grad_weight is off by" in text
    assert text.splitlines()[0].count("verdict,why") == 1
    write_csv(tmp_path / "without.csv", bench(layers), "cpu", "command")
    assert "verdict" not in (tmp_path / "without.csv").read_text()
