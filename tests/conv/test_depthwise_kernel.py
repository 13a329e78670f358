"""torch's own depthwise kernel, which GPUs alone have: what it supports, and what is made of it, on a CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.gemm import depthwise
from yolo_rocm.conv.heuristics import preferred
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, Operands
from yolo_rocm.conv.problem import ConvProblem

from .problems import made_problem, native_passes

KERNEL = BY_NAME["depthwise_kernel"]


def deep(
    device="cuda:0",
    channels=6,
    out_channels=6,
    kernel=(3, 3),
    stride=(1, 1),
    padding=(1, 1),
    dilation=(1, 1),
    size=(9, 8),
):
    weight = (out_channels, 1, *kernel)
    geometry = (stride, padding, dilation, (0, 0), channels, False)
    return ConvProblem((2, channels, *size), weight, *geometry, torch.float64, device, False)


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_it_supports_one_group_a_channel_on_a_gpu(device):
    assert KERNEL.not_supported_reasons(deep(device)) == []
    assert preferred(deep(device), "forward")[0] == "depthwise_kernel"
    assert KERNEL.not_supported_reasons(made_problem(device=device))  # no groups
    assert KERNEL.not_supported_reasons(replace(deep(device), transposed=True))


def test_a_cpu_does_not_have_it():
    (reason,) = KERNEL.not_supported_reasons(deep("cpu"))
    assert reason == "torch has this kernel for GPUs only, this is cpu"


SHAPES = {
    "plain": deep("cpu"),
    "stride 2": deep("cpu", stride=(2, 2)),
    "rows that no tap meets": deep("cpu", stride=(3, 2), padding=(0, 0), size=(9, 10)),
    "more padding than kernel": deep("cpu", padding=(4, 3)),
    "dilated": deep("cpu", dilation=(2, 1), padding=(2, 0)),
    "1x3": deep("cpu", kernel=(1, 3), padding=(0, 1), stride=(1, 2)),
    "stride and dilation": deep("cpu", kernel=(5, 3), stride=(2, 3), dilation=(1, 2), padding=(1, 2), size=(13, 14)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_all_passes_are_those_of_a_convolution(monkeypatch, name):
    def on_a_cpu(x, weight, bias, stride, padding, dilation):
        return F.conv2d(x, weight, bias, stride, padding, dilation, groups=x.shape[1])

    monkeypatch.setattr(depthwise, "_depthwise", on_a_cpu)
    problem = SHAPES[name]
    operands = Operands.of(problem)
    exact = native_passes(problem, operands)
    for which in PASSES:
        torch.testing.assert_close(CONVOLUTION.run(KERNEL, problem, which, operands, 1 << 40), exact[which])
