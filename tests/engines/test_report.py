"""What seams have met, read while another thread computes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import yolo_rocm
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.report import ConvReport, InferenceReport
from yolo_rocm.engines.planner import PassChoice, Plan
from yolo_rocm.norm.algorithms import BY_NAME
from yolo_rocm.norm.report import NormReport

pytestmark = pytest.mark.once

HERE = str(Path(yolo_rocm.__file__).parent)
REPORTS = (ConvReport, InferenceReport, NormReport)
READS = ("engines", "summary", "as_dict", "table", "layers", "replan")


def interrupted(read: Callable[[], Any], at: int, meet: Callable[[], None]) -> bool:
    """Read, let something happen before the step of Python with a number, and return whether there was that many."""
    steps, before = 0, sys.gettrace()

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal steps
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if steps == at:
                meet()
            steps += 1
        return trace

    sys.settrace(trace)
    try:
        read()
    finally:
        sys.settrace(before)
    return steps > at


@pytest.mark.parametrize("named", [pytest.param(False, marks=pytest.mark.deep), True])
@pytest.mark.parametrize("kind", REPORTS)
@pytest.mark.parametrize("name", READS)
def test_a_report_can_be_read_at_any_time(kind: Any, name: str, named: bool) -> None:
    """Another thread may meet a new shape, or a layer, between any two steps of Python."""
    if not hasattr(kind, name):
        pytest.skip(f"{kind.__name__} has none")
    plan: Any = Plan(dict.fromkeys(PASSES, PassChoice(BY_NAME["torch"], "only one")))
    report: Any = None

    def meet() -> None:
        number = len(report.served)
        served = report.entry(f"problem {number}", plan)
        if named:
            report._kinds[f"layer {number}"] = "Conv2d"
            report._layers[f"layer {number}"] = [served]

    def read() -> Any:
        return report.replan(lambda problem: plan) if name == "replan" else getattr(report, name)()

    at = 0
    while True:
        report = kind()
        meet()
        meet()
        if not interrupted(read, at, meet):
            break
        at += 1
    assert at > 3
    assert len(report.served) == 2
