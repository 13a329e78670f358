"""The engine room with an operator that is no convolution: heuristics, qualification, tuning, store, nearest size."""

from __future__ import annotations

import json

import pytest
import torch

from yolo_rocm.engines import plan_store
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.trust import checks
from yolo_rocm.errors import EngineError

from .toy import Compiled, Plain, Product, Products, planner_of


@pytest.fixture(autouse=True)
def folder(fresh, tmp_path, monkeypatch):
    """A store of its own, and kernels that have to be qualified."""
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    monkeypatch.setattr(checks, "interpreted", lambda: False)
    return tmp_path


def names(plan) -> list[str]:
    return [choice.algorithm.name for choice in plan.values()]


def slow(result: torch.Tensor) -> torch.Tensor:
    for _ in range(300):
        result = result + 0
    return result


def test_from_heuristics_to_measured_plans_that_the_next_process_reads(folder):
    quick, plain = Plain("quick"), Plain("plain", slow)
    planner = planner_of(Products(quick, plain))
    before = planner.plan(Product(16))
    assert names(before) == ["plain", "plain"]
    assert before["forward"].reason == "engine 'auto', by heuristics"
    timings = planner.tune([Product(16)])
    assert [timing.algorithm for timing in timings[Product(16)]["backward"]] == ["quick", "plain"]
    assert planner.generation == 1
    for each in (planner, planner_of(Products(quick, plain))):
        made = each.plan(Product(16))
        assert names(made) == ["quick", "quick"]
        assert made["forward"].reason == "fastest when measured"
        assert each.unmeasured([Product(16)]) == []
    (file,) = folder.glob("toy-*.json")
    assert json.loads(file.read_text()) == {
        "entries": {f"{Product(16).key} | gemm+triton+hip+aten 512 MB": {"forward": "quick", "backward": "quick"}}
    }


@pytest.mark.parametrize("bad_factor", [1.01, float("nan")])  # which is not greater than any limit
def test_a_kernel_is_qualified_before_its_first_use(events, bad_factor):
    good, bad = Compiled("good"), Compiled("bad", lambda result: result * bad_factor)
    planner = planner_of(Products(good, Plain()))
    assert [a.name for a in planner.checked_candidates(Product(16))] == ["plain", "good"]
    planner.plan(Product(32))
    assert good.ran == ["forward", "backward"]
    STATE.clear()
    planner = planner_of(Products(bad, Plain()), "triton+gemm")
    assert names(planner.plan(Product(16))) == ["plain", "plain"]
    assert [a.name for a in planner.checked_candidates(Product(16))] == ["plain"]
    assert bad.ran == ["forward"]
    (line,) = events.of("kernel.quarantined")
    assert "'toy' is left out on cpu for torch.float32: forward is wrong" in line
    STATE.clear()
    with pytest.raises(EngineError, match="bad: forward is wrong"):
        planner_of(Products(bad), "triton").plan(Product(16))
    assert bad.ran == ["forward"] * 2  # and not at its own size


def test_the_nearest_size_is_found_on_disk_and_the_store_is_read_through_once(monkeypatch):
    """By a planner of another process, for shapes that nobody has measured."""
    reads, taken_apart = [], plan_store.layer_and_size
    monkeypatch.setattr(plan_store, "layer_and_size", lambda key: (reads.append(key), taken_apart(key))[1])
    operator = Products(Plain(), *(Plain(f"for {size}") for size in range(10, 60, 10)))
    first = planner_of(operator)
    first.use({Product(size): dict.fromkeys(operator.passes, f"for {size}") for size in range(10, 60, 10)})
    assert reads == []  # nobody has looked for a nearest size yet
    second = planner_of(operator)
    for size, nearest in {1: 10, 14: 10, 16: 20, 46: 50, 1000: 50}.items():
        made = second.plan(Product(size))
        assert names(made) == [f"for {nearest}"] * 2
        assert made["forward"].reason == f"fastest when measured on {nearest}x8"
    assert len(reads) == 5 + 5  # each entry once, and each new shape
    second.use({Product(100): dict.fromkeys(operator.passes, "for 10")})
    assert names(second.plan(Product(101))) == ["for 10", "for 10"]


def test_neither_another_layer_nor_another_budget_is_near():
    operator = Products(Plain("other"), Plain())
    planner_of(operator).use({Product(16): dict.fromkeys(operator.passes, "other")})
    for planner, problem in (
        (planner_of(operator), Product(17, torch.float64)),
        (planner_of(operator, memory_mb=64), Product(17)),
        (planner_of(operator, "gemm"), Product(17)),
        (planner_of(operator, remember=False), Product(17)),
    ):
        assert "by heuristics" in planner.plan(problem)["forward"].reason
    assert names(planner_of(operator).plan(Product(17))) == ["other", "other"]
