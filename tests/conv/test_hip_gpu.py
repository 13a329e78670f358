"""The hip engine's convolutions on a GPU, NVIDIA or AMD; skipped where there is none or nothing compiles for it."""

from __future__ import annotations

import random
import threading
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import yolo_rocm
from yolo_rocm.bench.layers import model_layers
from yolo_rocm.conv.algorithms import ALGORITHMS
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import CONVOLUTION, Operands, Planner
from yolo_rocm.conv.seam import installed
from yolo_rocm.engines.hip.available import device_reason
from yolo_rocm.errors import EngineError

from ..torch_samples import CONVOLUTIONS
from .problems import MOST_RATIO, error_ratios, in_doubles, native_passes, random_problem
from .test_algorithms import assert_as_exact_as_native, gradients, sample_call

DEVICE = "cuda:0"
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.skipif(torch.cuda.is_available() and device_reason(DEVICE) is not None, reason="no compiler for it"),
    pytest.mark.usefixtures("ieee"),
]
HIP = [a for a in ALGORITHMS if a.engine == "hip"]
ROOM = 1 << 40


@pytest.fixture
def ieee():
    """Compare like with like: no TF32 on either side."""
    matmul, conv = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, conv


def run(algorithm, problem, which, operands):
    return CONVOLUTION.run(algorithm, problem, which, operands, ROOM)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("model", ["yolov8n.yaml", "yolo11n.yaml"])
def test_every_tile_is_as_exact_as_native_on_every_layer(model, channels_last, dtype):
    worst = {}
    for problem in (layer.problem for layer in model_layers(model, 320, 2, dtype, DEVICE, channels_last)):
        operands = Operands.of(problem)
        exact = native_passes(problem, in_doubles(operands))
        for algorithm in HIP:
            if algorithm.not_supported_reasons(problem):
                continue
            for which in (w for w in PASSES if algorithm.worth_measuring(problem, w)):
                ratio = error_ratios(algorithm, problem, run, passes=(which,), exact=exact, operands=operands)[which]
                if ratio > worst.get((algorithm.name, which), (0.0, ""))[0]:
                    worst[algorithm.name, which] = (ratio, str(problem))
    assert len(worst) > 10
    assert not {key: value for key, value in worst.items() if not value[0] <= MOST_RATIO}


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=lambda op: op.name)
def test_torchs_own_samples(op):
    supported = 0
    for sample in op.sample_inputs(DEVICE, torch.float32, requires_grad=True):
        tensors, call = sample_call(op, sample)
        native = gradients(call, tensors)
        with yolo_rocm.patched(("cuda",), "hip"):
            try:
                ours = gradients(call, tensors)
            except EngineError:
                continue
        supported += 1
        assert_as_exact_as_native(ours, native, gradients(call, [t.double() for t in tensors]))
    assert supported or "2d" not in op.name


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_anything_with_poisoned_memory(monkeypatch, seed, dtype):
    names = ("new_empty", "new_empty_strided")
    plain = {name: getattr(torch.Tensor, name) for name in names}

    def poisoned(name):
        return lambda *args, **kwargs: plain[name](*args, **kwargs).fill_(float("nan"))

    problem = replace(random_problem(random.Random(seed), dtype), device=DEVICE)
    with monkeypatch.context() as patch:
        for name in names:
            patch.setattr(torch.Tensor, name, poisoned(name))
        for algorithm in HIP:
            if not algorithm.not_supported_reasons(problem):
                ratios = error_ratios(algorithm, problem, run)
                assert max(ratios.values()) <= MOST_RATIO, (algorithm.name, str(problem), ratios)


def test_a_cuda_graph_replays_all_passes():
    conv = torch.nn.Conv2d(16, 24, 3, 2, 1, device="cuda")
    x = torch.randn(4, 16, 20, 20, device="cuda", requires_grad=True)

    def step():
        y = conv(x)
        y.square().sum().backward()
        return y

    with yolo_rocm.patched(("cuda",), "hip") as report:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        x.grad = None
        conv.zero_grad()
        with torch.cuda.graph(graph):
            y = step()
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
    assert set(report.engines()) == {"hip"}
    expected = [t.detach().clone().requires_grad_() for t in (x, conv.weight, conv.bias)]
    true = F.conv2d(*expected, 2, 1)
    grads = torch.autograd.grad(true.square().sum(), expected)
    captured = [y.detach(), x.grad, conv.weight.grad, conv.bias.grad]
    torch.testing.assert_close(captured, [true.detach(), *grads], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_threads_on_streams_of_their_own(channels_last):
    layers = [torch.nn.Conv2d(32, 48, 3, 1, 1), torch.nn.Conv2d(32, 32, 3, 2, 1, groups=32)]
    layout = torch.channels_last if channels_last else torch.contiguous_format
    layers = [layer.cuda().to(memory_format=layout) for layer in layers]
    x = torch.randn(8, 32, 40, 40, device="cuda").to(memory_format=layout)

    def passes(layer):
        leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        y = layer(leaf)
        return [y.detach(), *torch.autograd.grad(y.square().sum(), [leaf, layer.weight])]

    wanted, results = [passes(layer) for layer in layers], []
    torch.cuda.synchronize()

    def work(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(10):
                found = passes(layers[number])
            torch.cuda.current_stream().synchronize()
        results.append((number, found))

    with installed(Patch(["cuda"], Planner("hip", remember=False))):
        threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 4
    for number, found in results:
        torch.testing.assert_close(found, wanted[number], rtol=1e-4, atol=1e-3)


def test_the_gradient_of_the_weight_is_the_same_every_time():
    problem = model_layers("yolov8n.yaml", 320, 8, torch.float32, DEVICE, True)[4].problem
    operands = Operands.of(problem)
    for algorithm in HIP:
        if not algorithm.not_supported_reasons(problem) and algorithm.worth_measuring(problem, "grad_weight"):
            first = run(algorithm, problem, "grad_weight", operands)
            for _ in range(3):
                assert torch.equal(first, run(algorithm, problem, "grad_weight", operands)), algorithm.name


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_offsets_beyond_two_to_the_31(channels_last):
    if torch.cuda.get_device_properties(0).total_memory < 48 << 30:
        pytest.skip("needs 40 GiB")
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.empty(70, 16, 1400, 1400, device="cuda", dtype=torch.float16, memory_format=layout).zero_()
    assert x.numel() > 2**31
    # The last elements of all, and few enough that their sums stay inside of fp16.
    x[-1, :, -200:, -200:] = torch.randn(16, 200, 200, device="cuda", dtype=torch.float16)
    fixed = ([1, 1], [1, 1], [1, 1], False, [0, 0])
    for groups in (1, 16):
        weight = 0.1 * torch.randn(16, 16 // groups, 3, 3, device="cuda", dtype=torch.float16).to(memory_format=layout)
        with yolo_rocm.patched(("cuda",), "hip", memory_mb=1 << 15) as report:  # so much that no batch is cut
            y = F.conv2d(x, weight, None, 1, 1, 1, groups)
            ours = torch.ops.aten.convolution_backward(y, x, weight, None, *fixed, groups, [True, True, False])
        assert set(report.engines()) == {"hip"}
        small = F.conv2d(x[-1:], weight, None, 1, 1, 1, groups)
        torch.testing.assert_close(y[-1:], small, rtol=1e-2, atol=1e-2)
        assert small.any()
        assert not y[:-1].any()
        wanted = torch.ops.aten.convolution_backward(small, x[-1:], weight, None, *fixed, groups, [True, True, False])
        torch.testing.assert_close(ours[0][-1:], wanted[0], rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(ours[1], wanted[1], rtol=2e-2, atol=float(wanted[1].float().std()) / 50)
        del y, ours
