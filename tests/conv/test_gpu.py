"""The contract and the launches on a GPU, NVIDIA or AMD; skipped where there is none, or no engine compiles for it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import yolo_rocm
from yolo_rocm.bench.layers import model_layers
from yolo_rocm.conv.algorithms import ALGORITHMS, INFERENCE_ALGORITHMS
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import CONVOLUTION, Planner
from yolo_rocm.conv.seam import installed
from yolo_rocm.engines.hip.available import device_reason as hip_reason
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.triton import direct, launch
from yolo_rocm.engines.triton.available import device_reason as triton_reason
from yolo_rocm.engines.triton.available import triton_version
from yolo_rocm.engines.tuning import compile_ahead

from .cases import CASES, activated, conv
from .test_contract import CONTRACT, DTYPES, INFERENCE, LOOSE

DEVICE = "cuda:0"
pytestmark = [pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"), pytest.mark.usefixtures("ieee")]
layouts = pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.fixture(params=["gemm", "triton", "hip"])
def any_engine(request):
    why = {"triton": triton_reason, "hip": hip_reason}.get(request.param, lambda device: None)(DEVICE)
    return request.param if why is None else pytest.skip(why)


def tried(algorithms, problem):
    """Yield the algorithms that support a problem, each with its contract and the passes it is tried for."""
    for algorithm in algorithms:
        if not algorithm.not_supported_reasons(problem):
            which = [each for each in PASSES if algorithm.worth_measuring(problem, each)]
            yield algorithm, CONTRACT if algorithm.exact else LOOSE, which


@dtypes
def test_every_case(poisoned, any_engine, dtype):
    """Values, and the order of sums."""
    algorithms = [algorithm for algorithm in ALGORITHMS if algorithm.engine == any_engine]
    for last, case in itertools.product((False, True), CASES.values()):
        problem = replace(case, device=DEVICE, dtype=dtype, channels_last=last)
        for algorithm, contract, which in tried(algorithms, problem):
            contract.check_values(algorithm, problem, which or PASSES[:1])
            contract.check_order(algorithm, problem, PASSES[2:])


@dtypes
@layouts
@pytest.mark.parametrize("model", ["yolov8n.yaml", "yolo11n.yaml"])
def test_every_layer(any_engine, model, channels_last, dtype):
    algorithms = [algorithm for algorithm in ALGORITHMS if algorithm.engine == any_engine and algorithm.exact]
    problems = [layer.problem for layer in model_layers(model, 320, 2, dtype, DEVICE, channels_last)]
    compile_ahead(CONVOLUTION, problems, lambda p: [a for a in algorithms if not a.not_supported_reasons(p)])
    for problem in problems:
        for algorithm, contract, which in tried(algorithms, problem):
            contract.check_values(algorithm, problem, which or PASSES[:1])


@dtypes
@layouts
def test_every_kernel_and_tile_with_bias_and_activation(engine, channels_last, dtype):
    layers = [CASES[name] for name in ("3x3", "image", "depthwise")]
    layers += [conv((2, 64, 20, 20), 64, (3, 3), (1, 1), (1, 1)), conv((1, 128, 20, 20), 64, (1, 1))]
    computed = 0
    for layer in layers:
        problem = replace(activated(layer), dtype=dtype, channels_last=channels_last, device=DEVICE)
        for algorithm in INFERENCE_ALGORITHMS:
            if algorithm.engine == engine and not algorithm.not_supported_reasons(problem):
                INFERENCE.check_values(algorithm, problem)
                computed += 1
    assert computed >= len(layers)


def test_a_cuda_graph_replays_all_passes(engine):
    layer = torch.nn.Conv2d(16, 24, 3, 2, 1, device="cuda")
    x = torch.randn(4, 16, 20, 20, device="cuda", requires_grad=True)

    def step():
        x.grad = None
        layer.zero_grad()
        y = layer(x)
        y.square().sum().backward()
        return y

    with yolo_rocm.patched(("cuda",), engine) as report:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = step()
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
    assert set(report.engines()) == {engine}
    leaves = [t.detach().clone().requires_grad_() for t in (x, layer.weight, layer.bias)]
    true = F.conv2d(*leaves, 2, 1)
    expected = [true.detach(), *torch.autograd.grad(true.square().sum(), leaves)]
    torch.testing.assert_close([y.detach(), x.grad, layer.weight.grad, layer.bias.grad], expected, rtol=1e-4, atol=1e-4)


@layouts
def test_threads_on_streams_of_their_own(engine, channels_last):
    layers = [torch.nn.Conv2d(32, 48, 3, 1, 1), torch.nn.Conv2d(32, 32, 3, 2, 1, groups=32)]
    layout = torch.channels_last if channels_last else torch.contiguous_format
    layers = [layer.cuda().to(memory_format=layout) for layer in layers]
    x = torch.randn(8, 32, 40, 40, device="cuda").to(memory_format=layout)

    def passes(layer):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        y = layer(leaf)
        return [y.detach(), *torch.autograd.grad(y.square().sum(), [leaf, layer.weight])]

    expected, results = [passes(layer) for layer in layers], []
    torch.cuda.synchronize()

    def work(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(10):
                computed = passes(layers[number])
            torch.cuda.current_stream().synchronize()
        results.append((number, computed))

    with installed(Patch(["cuda"], Planner(engine, remember=False))):
        threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 4
    for number, computed in results:
        for ours, native in zip(computed, expected[number], strict=True):
            assert relative_error(ours, native.double()) < 1e-4  # of a whole tensor: single sums may be near zero


@pytest.mark.parametrize("groups", [1, 32], ids=["gemm", "depthwise"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@layouts
def test_a_launch_is_repeated_with_what_suits_it(engine, channels_last, dtype, groups):
    """From the second call on, a launch is at hand: other strides, odd addresses and streams must not mix them up."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    weight = torch.randn(32, 32 // groups, 3, 3, device="cuda").to(dtype).contiguous(memory_format=layout)

    def drawn(odd=False):
        room = torch.randn(4 * 32 * 12 * 12 + 8, device="cuda").to(dtype)
        flat = room[1:-7] if odd else room[:-8]
        assert (flat.data_ptr() % 16 != 0) == odd
        return flat.view(4, 12, 12, 32).permute(0, 3, 1, 2) if channels_last else flat.view(4, 32, 12, 12)

    def passes(x, grad):
        leaves = [x.detach().requires_grad_(), weight.detach().requires_grad_()]
        y = F.conv2d(*leaves, None, 1, 1, 1, groups)
        return [y.detach(), *torch.autograd.grad(y, leaves, grad)]

    one = torch.ones((), device="cuda", dtype=dtype).expand(4, 32, 12, 12)
    cases = [(drawn(), drawn()), (drawn(), drawn()), (drawn(odd=True), drawn()), (drawn(), drawn(odd=True))]
    cases += [(drawn(), one), (drawn(), drawn().transpose(2, 3)), (drawn(), drawn())]
    with installed(Patch(["cuda"], Planner(engine, remember=False))):
        computed = [passes(*case) for case in cases]
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            computed.append(passes(*cases[0]))
            torch.cuda.current_stream().synchronize()
    for ours, case in zip(computed, [*cases, cases[0]], strict=True):
        # cuDNN does not support odd addresses in channels_last.
        aligned = [part.clone(memory_format=torch.preserve_format) if part is not one else part for part in case]
        for mine, native in zip(ours, passes(*aligned), strict=True):
            assert relative_error(mine, native.double()) < (1e-5 if dtype == torch.float32 else 1e-2)
            assert mine.stride() == native.stride()
    if engine == "triton":
        assert not direct._given_up
        assert bool(launch._ready) == (direct.OLDEST <= triton_version() <= direct.NEWEST)


@layouts
def test_offsets_beyond_two_to_the_31(engine, channels_last):
    if torch.cuda.get_device_properties(0).total_memory < 48 << 30:
        pytest.skip("needs 40 GiB")
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.empty(70, 16, 1400, 1400, device="cuda", dtype=torch.float16, memory_format=layout).zero_()
    assert x.numel() > 2**31
    # The last elements of all, and few enough that their sums stay inside of fp16.
    x[-1, :, -200:, -200:] = torch.randn(16, 200, 200, device="cuda", dtype=torch.float16)
    for groups in (1, 16):
        weight = 0.1 * torch.randn(16, 16 // groups, 3, 3, device="cuda", dtype=torch.float16).to(memory_format=layout)

        def gradients(grad, x, weight=weight, groups=groups):
            geometry = ([1, 1], [1, 1], [1, 1], False, [0, 0], groups)
            return torch.ops.aten.convolution_backward(grad, x, weight, None, *geometry, [True, True, False])[:2]

        with yolo_rocm.patched(("cuda",), engine, memory_mb=1 << 15) as report:  # so much that no batch is cut
            y = F.conv2d(x, weight, None, 1, 1, 1, groups)
            gx, gw = gradients(y, x)
        assert set(report.engines()) == {engine}
        small = F.conv2d(x[-1:], weight, None, 1, 1, 1, groups)
        torch.testing.assert_close(y[-1:], small, rtol=1e-2, atol=1e-2)
        assert not y[:-1].any()
        assert small.any()
        for_x, for_weight = gradients(small, x[-1:])
        torch.testing.assert_close(gx[-1:], for_x, rtol=2e-2, atol=2e-2)
        assert torch.isfinite(for_weight).all()
        torch.testing.assert_close(gw, for_weight, rtol=2e-2, atol=float(for_weight.float().std()) / 50)
        del y, gx, gw


def test_a_dead_device_is_told_with_who_did_it(tmp_path):
    """In processes of their own: the first one's device answers nothing any more, the second one does without it."""
    code = """
import torch
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
