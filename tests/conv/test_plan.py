"""Planner, rules and tuner: the right choice, made once, remembered, and never a reason to fail."""

from __future__ import annotations

import itertools
import json
import logging
import multiprocessing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.bench.layers import model_layers
from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import CONVOLUTION, Operands, Planner
from yolo_rocm.engines import planner as planner_module
from yolo_rocm.engines import tuning as tune_module
from yolo_rocm.engines.plan_store import PlanStore
from yolo_rocm.engines.tuning import Timing

from .cases import conv


def problem(size=16, batch=2, kernel=3):
    return conv((batch, 8, size, size), 8, (kernel, kernel), (1, 1), (kernel // 2, kernel // 2))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def clock(monkeypatch):
    """Timings by decree: `planes` is fastest forward, `columns` in backward."""
    asked = []

    def tune(operator, problems, candidates, budget, limit_s):
        for p in problems:
            asked.append(p)
            yield p, {which: [Timing("planes" if which == "forward" else "columns", 1.0)] for which in PASSES}

    monkeypatch.setattr(planner_module, "tune", tune)
    return asked


@pytest.mark.parametrize("model", ["yolov8n.yaml", "yolo11n-seg.yaml"])
def test_rules_plan_every_layer_without_measuring(folder, model):
    planner = Planner("gemm", remember=False)
    for layer, device in itertools.product(model_layers(model, 64, 2, torch.float32, "cpu"), ("cpu", "cuda:0")):
        made = planner.plan(replace(layer.problem, device=device))
        assert made.engine == "gemm"
        assert "by heuristics" in made["forward"].reason


def test_a_patch_follows_what_was_chosen_since(folder, monkeypatch):
    """Also where each gradient is computed by an algorithm of its own."""
    planner, (x, weight, grad), asked = Planner("gemm"), Operands.of(problem()), []
    for name, which in itertools.product(("windows", "columns"), PASSES[1:]):
        kind = type(BY_NAME[name])
        compute = getattr(kind, which)

        def noted(self, *operands, compute=compute, which=which):
            asked.append((self.name, which))
            return compute(self, *operands)

        monkeypatch.setattr(kind, which, noted)
    patch, geometry = Patch(("cpu",), planner), ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    before = patch.lookup(x, weight, geometry)
    assert patch.lookup(x, weight, geometry) is before
    planner.use({problem(): {"forward": "planes", "grad_input": "windows", "grad_weight": "columns"}})
    route = patch.lookup(x, weight, geometry)
    assert route is not before
    asked.clear()  # of the examination
    route.backward(grad, x, weight, (True, True))
    assert asked == [("columns", "grad_weight"), ("windows", "grad_input")]


def test_a_problem_of_inference_has_a_name_of_its_own():
    plain = problem()
    leaky = replace(plain, bias=True, activation="leaky_relu", slope=0.1)
    assert str(leaky) == f"{plain} with bias leaky_relu 0.1"
    names = {str(each) for each in (plain, leaky, replace(leaky, bias=False), replace(plain, bias=True))}
    assert len(names) == 4  # plans on disk go by it
    assert leaky.plain == plain


def test_plans_of_another_device_are_not_taken_over(folder, clock, monkeypatch):
    Planner("gemm").tune([problem()])
    monkeypatch.setattr("yolo_rocm.engines.plan_store.device_name", lambda device: "another card")
    assert "by heuristics" in Planner("gemm").plan(problem())["forward"].reason


@pytest.mark.parametrize("text", ["", '{"entries": 3}', '{"entries": {"a": ["b"]}}', "\x00\x01"])
def test_a_broken_file_costs_a_log_line(folder, clock, text, caplog):
    Planner("gemm").tune([problem()])
    (file,) = folder.glob("conv-*.json")
    file.write_text(text)
    with caplog.at_level(logging.WARNING, logger="yolo_rocm"):
        planner = Planner("gemm")
        assert "by heuristics" in planner.plan(problem())["forward"].reason
    assert len(caplog.records) == 1
    planner.tune([problem()])
    assert json.loads(file.read_text())["entries"]


def _write(folder: str, number: int) -> None:
    store = PlanStore("cpu", Path(folder))
    for entry in range(10):
        store.add({f"problem {number} {entry}": {"forward": "windows"}})


@pytest.mark.once
def test_processes_that_write_at_once_lose_nothing(tmp_path):
    # Forked where that is possible: they have nothing to import and start together.
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    workers = [context.Process(target=_write, args=(str(tmp_path), number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    (file,) = tmp_path.glob("conv-*.json")
    assert len(json.loads(file.read_text())["entries"]) == 30
    assert not list(tmp_path.glob("*.tmp"))


def test_real_tuning_picks_the_fastest_it_measured(folder):
    planner = Planner("gemm")
    progress = []
    timings = planner.tune([problem(), problem(8)], lambda done, total: progress.append((done, total)))
    assert progress == [(0, 2), (1, 2), (2, 2)]
    for which, rows in timings[problem()].items():
        assert len(rows) >= 4
        assert [row.milliseconds for row in rows] == sorted(row.milliseconds for row in rows)
        assert planner.plan(problem())[which].algorithm.name == rows[0].algorithm


def test_what_is_measured_when_ctrl_c_comes_is_kept(folder):
    def interrupt(done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    planner, problems = Planner("gemm"), [problem(), problem(8)]
    with pytest.raises(KeyboardInterrupt):
        planner.tune(problems, interrupt)
    (left,) = Planner("gemm").unmeasured(problems)  # another process
    assert planner.unmeasured([left]) == [left]


def test_compiling_ahead_leaves_time_to_measure(monkeypatch):
    """It ends after a share of the limit, and measuring begins nothing after all of it."""
    now, asked = [100.0], []
    monkeypatch.setattr(tune_module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def compiles(operator, problems, candidates, out_of_time):
        for now[0] in (101.0, 105.0, 107.0, 109.0):  # seconds 1, 5, 7 and 9 of 10
            asked.append(out_of_time())

    monkeypatch.setattr(tune_module, "compile_ahead", compiles)
    monkeypatch.setattr(tune_module, "time_candidates", lambda *args: now.__setitem__(0, now[0] + 0.9) or [])
    problems = [problem(size) for size in (5, 6, 7)]
    begun = [problem for problem, _ in tune_module.tune(CONVOLUTION, problems, lambda problem: [], 1 << 40, 10.0)]
    assert asked == [False, False, True, True]
    assert [problem.input_shape[2] for problem in begun] == [7]  # the largest; it takes three passes of 0.9 s
