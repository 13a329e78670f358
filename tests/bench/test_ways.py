"""The ways of a training step: which there are, and whose layout each takes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys

import pytest
import torch

from yolo_rocm import ultralytics_hooks
from yolo_rocm.bench.ways import ways
from yolo_rocm.errors import ConfigError
from yolo_rocm.preset.resolve import resolve
from yolo_rocm.session.layout import measurable
from yolo_rocm.session.run import Run
from yolo_rocm.session.session import Session

from .made_ways import BOTH

pytestmark = pytest.mark.once


def test_kinds_are_chosen_and_quick_leaves_out_what_takes_longest():
    every = list(dict.fromkeys(way.kind for way in ways()))
    assert every == [
        "stock",
        "stock + compile",
        "vendor off",
        "vendor off + compile",
        "ours",
        "ours lean",
        "ours + graph",
        "ours lean + graph",
        "ours + compile",
        "ours auto + vendor",
    ]
    quick = [way.name for way in ways(quick=True)]
    assert quick == [*BOTH["stock"], "vendor off NCHW", *BOTH["ours"], "ours lean (faster layout)"]
    assert [way.name for way in ways(chosen="ours, stock", quick=True)] == [*BOTH["stock"], *BOTH["ours"]]
    assert [way.name for way in ways(chosen="stock + compile", on_gpu=False)] == ["stock + compile (faster layout)"]
    with pytest.raises(ConfigError, match="no way 'our'; did you mean 'ours'"):
        ways(chosen="our")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_preset_trains_in_the_layout_of_a_session(device):
    """On a CPU it stays as Ultralytics has it, and so does all that belongs to ours."""
    on_gpu = measurable(torch.device(device))
    assert on_gpu == (device == "cuda")
    compared = ways(chosen="ours,ours lean,ours + compile,ours auto + vendor", on_gpu=on_gpu)
    assert [way.of_preset for way in compared] == [True, on_gpu, False, False, False]
    assert [way.channels_last for way in compared[2:]] == [None if on_gpu else False] * 3


def test_ours_is_what_the_preset_runs():
    ours = next(way for way in ways() if way.kind == "ours")
    preset = resolve("generic").preset
    planner = ours.patches[0].planner
    assert (planner.engine, planner.budget) == (preset.conv.engine, preset.conv.memory_mb * 2**20)
    assert ours.of_preset == (preset.step.memory == "full")
    other = next(way for way in ways("gemm", 7) if way.kind == "ours").patches[0].planner
    assert (other.engine, other.budget) == ("gemm", 7 * 2**20)


# What a session changes besides in Ultralytics: nothing of it computes a training step.
AROUND_STEPS = {
    "around_inference", "inference_blocks", "inference_networks",
    "loaders_built_by", "network_calls", "loaders_follow", "memory_errors_recognised", "ranks_join", "whole_runs",
}  # fmt: skip


def is_scope(function):
    return str(inspect.signature(function).return_annotation).startswith(("Iterator", "AbstractContextManager"))


@pytest.mark.parametrize(("kind", "memory", "graph"), [("ours", "full", "off"), ("ours lean + graph", "lean", "on")])
def test_ours_switches_on_what_a_session_does(monkeypatch, kind, memory, graph):
    entered = []

    def noted(name, scope):
        def enter(*args, **kwargs):
            entered.append(name)
            return scope(*args, **kwargs)

        return enter

    scopes = {
        name: scope
        for module in pkgutil.iter_modules(ultralytics_hooks.__path__)
        for name, scope in vars(importlib.import_module(f"{ultralytics_hooks.__name__}.{module.name}")).items()
        if inspect.isfunction(scope) and scope.__module__.endswith(f".{module.name}") and is_scope(scope)
    }
    assert scopes.keys() >= {*AROUND_STEPS, "anchors_once", "fused_blocks", "fused_losses"}
    for module in [module for name, module in sys.modules.items() if name.startswith("yolo_rocm.")]:
        for name, scope in scopes.items():
            if vars(module).get(name) is scope:
                monkeypatch.setattr(module, name, noted(name, scope))
    with next(way for way in ways() if way.kind == kind).applied("cpu"):
        pass
    of_the_way = [*entered, "fused_optimizers"]  # the bench makes its optimizer itself, and has it fused
    entered.clear()
    with Run(Session("generic", {"step": {"memory": memory, "graph": graph}}), {}).applied():
        pass
    assert set(entered) - AROUND_STEPS == set(of_the_way) - AROUND_STEPS


def test_what_is_measured_for_one_way_is_known_to_all_with_its_engines():
    planners: dict[str, set[tuple[int, ...]]] = {}
    for way in ways():
        if way.is_ours:
            planners.setdefault(way.kind, set()).add(tuple(id(patch.planner) for patch in way.patches))
    ((conv, norm),) = planners["ours"]
    assert conv != norm
    for kind in ("ours lean", "ours + graph", "ours lean + graph", "ours + compile"):
        assert planners[kind] == {(conv, norm)}
    ((beside_vendor, its_norm),) = planners["ours auto + vendor"]
    assert len({conv, norm, beside_vendor, its_norm}) == 4  # here the vendor library is a candidate
