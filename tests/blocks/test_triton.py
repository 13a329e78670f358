"""Blocks whose passes are kernels of ours, in Triton's interpreter: under autocast nothing is switched off for them."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.blocks.block import conv_norm_act
from yolo_rocm.engines.triton.available import missing_reason

from ..interpreted import interpreter
from .test_block import by_one, by_two, layers, same, sample, served, stepped

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))


@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "autocast"])
def test_a_step_has_the_bits_of_the_two_functions(amp):
    x, three = sample(), layers(padding=1)
    with interpreter(), served("triton") as (patch, norms):
        same(stepped(by_one, x, three, amp), stepped(by_two, x, three, amp))
        assert {entry.plan.engine for report in (patch.report, norms.report) for entry in report.served.values()} == {
            "triton"
        }
        assert [known.is_cast for known in norms.fused().values() if hasattr(known, "is_cast")] == [False]


def test_with_other_engines_autocast_is_switched_off():
    with served("gemm") as (_, norms):
        conv_norm_act(sample(), *layers())
        assert [known.is_cast for known in norms.fused().values()] == [True]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = conv_norm_act(sample(), *layers())
    assert found.dtype == torch.bfloat16
