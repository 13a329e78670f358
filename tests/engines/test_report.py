"""What seams have met, read while another thread computes."""

from __future__ import annotations

import pytest

from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.report import ConvReport
from yolo_rocm.engines.planner import PassChoice, Plan
from yolo_rocm.norm.algorithms import BY_NAME
from yolo_rocm.norm.report import NormReport

pytestmark = pytest.mark.once


@pytest.mark.parametrize("kind", [ConvReport, NormReport])
@pytest.mark.parametrize("read", ["engines", "summary", "as_dict", "table", "replan"])
def test_a_report_can_be_read_while_another_thread_meets_a_new_shape(kind, read):
    report, choices = kind(), dict.fromkeys(PASSES, PassChoice(BY_NAME["torch"], "only one"))

    class Meeting(Plan):
        @property
        def engine(self):
            if len(report.served) < 10:
                report.entry(f"problem {len(report.served)}", Plan(choices))
            return "gemm"

    for number in range(3):
        report.entry(f"problem {number}", Meeting(choices))
    report.replan(lambda problem: Meeting(choices)) if read == "replan" else getattr(report, read)()
    assert report.engines()["gemm"] >= 3
