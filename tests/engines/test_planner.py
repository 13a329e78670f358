"""The engine room with an operator that is no convolution: heuristics, qualification, tuning, store, nearest size."""

from __future__ import annotations

import json
import logging

import pytest
import torch

from yolo_rocm.engines import plan_store
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.plan_store import PlanStore, layer_and_size
from yolo_rocm.engines.trust import checks
from yolo_rocm.errors import ConfigError, EngineError

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


def test_a_kernel_is_qualified_before_its_first_use(caplog):
    good, bad = Compiled("good"), Compiled("bad", lambda result: result * 1.01)
    planner = planner_of(Products(good, Plain()))
    assert [a.name for a in planner.checked_candidates(Product(16))] == ["plain", "good"]
    assert good.ran == ["forward", "backward"]
    planner.plan(Product(32))
    assert good.ran == ["forward", "backward"]
    STATE.clear()
    with caplog.at_level(logging.WARNING, logger="yolo_rocm"):
        planner = planner_of(Products(bad, Plain()), "triton+gemm")
        assert names(planner.plan(Product(16))) == ["plain", "plain"]
        assert [a.name for a in planner.checked_candidates(Product(16))] == ["plain"]
    assert bad.ran == ["forward"]
    (record,) = caplog.records
    assert "'toy' is left out on cpu for torch.float32: forward is wrong" in record.getMessage()
    with pytest.raises(EngineError, match="bad: forward is wrong"):
        planner_of(Products(bad), "triton").plan(Product(16))


def test_only_what_fits_the_budget_is_a_candidate_unless_nothing_does(monkeypatch):
    large, small = Plain("large"), Plain("small")
    operator = Products(large, small)
    taken = {"large": 3 << 20, "small": 1 << 20}
    monkeypatch.setattr(operator, "smallest_workspace", lambda algorithm, problem: taken[algorithm.name])
    assert planner_of(operator, memory_mb=2).candidates(Product(4)) == [small]
    taken["small"] = 4 << 20
    assert planner_of(operator, memory_mb=2).candidates(Product(4)) == [large, small]


def test_what_becomes_a_candidate_because_another_is_left_out_is_qualified_too(monkeypatch):
    """Nothing that fits the budget works: what does not fit is a candidate now, and has to work as well."""
    fitting, large = (Compiled(name, lambda result: result * 1.01) for name in ("fitting", "large"))
    large.kernel = "another"
    operator = Products(fitting, large, plain := Plain())
    taken = {"fitting": 1 << 20, "large": 3 << 20, "plain": 3 << 20}
    monkeypatch.setattr(operator, "smallest_workspace", lambda algorithm, problem: taken[algorithm.name])
    assert planner_of(operator, memory_mb=2).checked_candidates(Product(4)) == [plain]
    assert (fitting.ran, large.ran) == (["forward"], ["forward"])


def test_a_wrong_budget_is_named_after_the_operator():
    with pytest.raises(ConfigError, match=r"toy\.memory_mb must be at least 1, got 0"):
        planner_of(Products(Plain()), memory_mb=0)


@pytest.fixture
def reads(monkeypatch):
    """Count the keys that are taken apart."""
    seen = []
    original = plan_store.layer_and_size
    monkeypatch.setattr(plan_store, "layer_and_size", lambda key: (seen.append(key), original(key))[1])
    return seen


def test_the_nearest_size_is_found_on_disk_and_the_store_is_read_through_once(folder, reads):
    """By a planner of another process, for shapes that nobody has measured."""
    operator = Products(Plain(), *(Plain(f"for {size}") for size in range(10, 60, 10)))
    first = planner_of(operator)
    first.use({Product(size): dict.fromkeys(operator.passes, f"for {size}") for size in range(10, 60, 10)})
    first.use({Product(10, torch.float64): dict.fromkeys(operator.passes, "plain")})
    assert reads == []  # nobody has looked for a nearest size yet
    second = planner_of(operator)
    for size in (1, 14, 16, 22, 44, 46, 1000):
        made = second.plan(Product(size))
        nearest = min(max(round(size / 10) * 10, 10), 50)
        assert names(made) == [f"for {nearest}"] * 2
        assert made["forward"].reason == f"fastest when measured on {nearest}x8"
    assert len(reads) == 6 + 7  # each entry once, and each new shape
    second.use({Product(100): dict.fromkeys(operator.passes, "for 10")})
    assert names(second.plan(Product(101))) == ["for 10", "for 10"]
    assert len(reads) == 6 + 7 + 1 + 1


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


def test_a_plan_that_names_an_algorithm_that_is_gone_is_measured_again(caplog):
    caplog.set_level("INFO")
    operator = Products(Plain("other"), Plain())
    planner_of(operator).use({
        Product(16): {"forward": "removed since", "backward": "other"},
        Product(20): {"forward": "other", "backward": "other"},
    })  # fmt: skip
    planner = planner_of(operator)
    assert planner.unmeasured([Product(16), Product(20)]) == [Product(16)]
    assert names(planner.plan(Product(16))) == ["other", "other"]  # of the nearest size that can be used
    assert caplog.text.count("1 plans in") == 1


def test_what_is_not_remembered_lasts_as_long_as_the_planner(folder):
    operator = Products(Plain("other"), Plain())
    planner = planner_of(operator, remember=False)
    planner.use({Product(16): dict.fromkeys(operator.passes, "other")})
    assert names(planner.plan(Product(16))) == names(planner.plan(Product(20))) == ["other", "other"]
    assert not list(folder.glob("toy-*"))


@pytest.mark.parametrize(
    ("key", "layer", "size"),
    [
        (
            "conv 3x3 8->8 padding 1x1 on 2x8x16x16 float32 cpu | gemm 512 MB",
            "conv 3x3 8->8 padding 1x1 float32 cpu | gemm 512 MB",
            "2x8x16x16",
        ),
        ("norm on 64 float32 cuda", "norm float32 cuda", "64"),
        ("without a size", "without a size", "1"),
    ],
)
def test_a_key_is_a_layer_and_a_size(key, layer, size):
    assert layer_and_size(key) == (layer, size)


def test_a_file_of_an_earlier_version_of_the_store_is_read(folder):
    """As it was written: no index, keys as they are now."""
    key = "conv 3x3 8->8 padding 1x1 on 2x8x16x16 float32 cpu | gemm 512 MB"
    store = PlanStore("cpu")
    store.path.write_text(json.dumps({"entries": {key: {"forward": "windows"}}}))
    again = PlanStore("cpu")
    assert again.entries == {key: {"forward": "windows"}}
    assert again.nearest(key.replace("2x8x16x16", "4x8x20x20")) == ({"forward": "windows"}, "2x8x16x16")
    assert again.nearest(key.replace("3x3", "5x5")) is None
