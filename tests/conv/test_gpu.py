"""The same machinery on a GPU, NVIDIA or AMD; skipped where there is none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import yolo_rocm
from yolo_rocm.bench.layers import model_layers
from yolo_rocm.conv.algorithms import ALGORITHMS
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, Operands, Planner

from .test_contract import CONTRACT

pytestmark = [pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"), pytest.mark.usefixtures("ieee")]
GEMM = [a for a in ALGORITHMS if a.engine == "gemm"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("model", ["yolov8n.yaml", "yolo11n.yaml"])
def test_every_layer_is_as_exact_as_native(model, channels_last, dtype):
    for layer in model_layers(model, 320, 2, dtype, "cuda:0", channels_last):
        for algorithm in GEMM:
            if algorithm.exact and not algorithm.not_supported_reasons(layer.problem):
                CONTRACT.check_values(algorithm, layer.problem)


def test_no_warning_is_printed():
    """In a process of its own: torch warns about an override once per process."""
    code = (
        "import warnings, torch; warnings.simplefilter('error'); import yolo_rocm\n"
        "x = torch.randn(1, 3, 8, 8, device='cuda'); w = torch.randn(4, 3, 3, 3, device='cuda', requires_grad=True)\n"
        "with yolo_rocm.patched(('cuda',), 'gemm'): torch.nn.functional.conv2d(x, w).sum().backward()\n"
        "torch.nn.functional.conv2d(x, w).sum().backward()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "verriding" not in done.stderr


def test_amp_channels_last_and_backward_threads():
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(8, 16, 3, padding=1).cuda().to(memory_format=torch.channels_last)
    x = torch.randn(2, 8, 20, 20, device="cuda").contiguous(memory_format=torch.channels_last).requires_grad_()
    with yolo_rocm.patched(("cuda",), "gemm") as report, torch.autocast("cuda"):
        y = conv(x)
        y.float().square().sum().backward()
    (served,) = report.served.values()
    assert served.problem.dtype == torch.float16
    assert (served.forward_calls, served.backward_calls) == (1, 1)
    assert y.is_contiguous(memory_format=torch.channels_last)
    ours = (x.grad.clone(), conv.weight.grad.clone())
    x.grad = conv.weight.grad = None
    with torch.autocast("cuda"):
        conv(x).float().square().sum().backward()
    torch.testing.assert_close(ours, (x.grad, conv.weight.grad), rtol=2e-2, atol=2e-2)


def test_the_workspace_stays_inside_the_budget():
    """What the allocator says, beside results and operands."""
    layer = max(model_layers("yolov8n.yaml", 640, 16, torch.float32, "cuda:0"), key=lambda each: each.problem.flops)
    operands = Operands.of(layer.problem)
    for algorithm in Planner("gemm", memory_mb=64, remember=False).candidates(layer.problem):
        if not algorithm.exact:
            continue
        for which in PASSES:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            result = CONVOLUTION.run(algorithm, layer.problem, which, operands, 64 << 20)
            spent = torch.cuda.max_memory_allocated() - before
            own = result.numel() * result.element_size()
            # A band's own result and the final layout come on top of the workspace.
            assert spent <= (64 << 20) * 1.6 + 2.1 * own, (algorithm.name, which, spent >> 20, own >> 20)
            del result


def test_a_dead_device_is_told_with_who_did_it(tmp_path):
    """In processes of their own: the first one's device answers nothing any more, the second one does without it."""
    code = """
import sys, torch
from yolo_rocm.conv import plan
from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.gemm.windows import Windows
from yolo_rocm.conv.problem import ConvProblem

class Deadly(Windows):
    name = "deadly"
    def forward(self, problem, x, weight, bias):
        x.flatten()[torch.full((1,), 1 << 40, device=x.device)]  # an assertion inside of the kernel fails
        return super().forward(problem, x, weight, bias)

geometry = ((1, 1), (1, 1), (1, 1), (0, 0), 1, False)
problem = ConvProblem((2, 8, 9, 9), (8, 8, 3, 3), *geometry, torch.float32, "cuda:0", False)
plan.CONVOLUTION.algorithms = (BY_NAME["columns"], Deadly(), BY_NAME["windows"])
timings = plan.Planner("gemm").tune([problem])
print(sorted(t.algorithm for t in timings[problem]["forward"]))
"""
    environment = {**os.environ, "YOLO_ROCM_CACHE": str(tmp_path)}
    first, second = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
        for _ in range(2)
    )
    assert first.returncode == 1
    assert "DeviceLostError: cuda:0 does not answer any more since 'deadly' computed forward of conv" in first.stderr
    assert second.returncode == 0, second.stderr
    assert second.stdout.strip() == "['columns', 'windows']"
    assert "'deadly' is left out on cuda:0 for float32" in second.stderr
