"""What seams have met, read while another thread computes."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.conv.report import ConvReport
from yolo_rocm.engines.planner import PassChoice, Plan
from yolo_rocm.norm.algorithms import BY_NAME
from yolo_rocm.norm.problem import NormProblem
from yolo_rocm.norm.report import NormReport


class Meeting(Plan):
    """A plan that is read while another thread meets a new shape."""

    report: NormReport

    @property
    def engine(self) -> str:
        """Say who computes, later."""
        problem = NormProblem((len(self.report.served) + 3, 4, 5, 5), torch.float32, "cpu", False, True, True)
        self.report.entry(problem, Plan(self))
        self.report._kinds[str(problem)] = "BatchNorm2d"
        self.report._layers[str(problem)] = []
        return "gemm"


@pytest.mark.parametrize("named", [False, True])
def test_a_report_can_be_read_at_any_time(named: bool) -> None:
    report = NormReport()
    choice = PassChoice(BY_NAME["torch"], "only one")
    plan = Meeting(dict.fromkeys(("forward", "backward"), choice))
    plan.report = report
    served = report.entry(NormProblem((2, 4, 5, 5), torch.float32, "cpu", False, True, True), plan)
    if named:
        report._layers["bn"], report._kinds["bn"] = [served], "BatchNorm2d"
    for read in (report.engines, report.summary, report.as_dict, lambda: report.replan(lambda problem: plan)):
        before = len(report.served)
        read()
        assert len(report.served) > before or read is not report.engines


def test_an_empty_one() -> None:
    assert ConvReport(0).as_dict() == {"engines": {}, "layers": [], "problems": []}
