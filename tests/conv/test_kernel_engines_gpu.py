"""What every engine of compiled kernels has to show on a GPU, NVIDIA or AMD; skipped where none compiles for it."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import yolo_rocm
from yolo_rocm.bench.layers import model_layers
from yolo_rocm.conv.algorithms import ALGORITHMS
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import CONVOLUTION, Planner
from yolo_rocm.conv.seam import installed
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.tuning import compile_ahead

from .cases import CASES
from .test_contract import CONTRACT, LOOSE

DEVICE = "cuda:0"
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.usefixtures("ieee"),
]


def of_engine(engine):
    return [algorithm for algorithm in ALGORITHMS if algorithm.engine == engine]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("model", ["yolov8n.yaml", "yolo11n.yaml"])
def test_every_tile_is_exact_on_every_layer(engine, model, channels_last, dtype):
    problems = [layer.problem for layer in model_layers(model, 320, 2, dtype, DEVICE, channels_last)]
    supporting = {p: [a for a in of_engine(engine) if not a.not_supported_reasons(p)] for p in problems}
    compile_ahead(CONVOLUTION, problems, supporting.__getitem__)
    for problem, algorithms in supporting.items():
        for algorithm in algorithms:
            which = [each for each in PASSES if algorithm.worth_measuring(problem, each)]
            if which:
                CONTRACT.check_values(algorithm, problem, which)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_the_contract(poisoned, engine, dtype):
    """Every case of the table, with the tiles that a pass would be tried with: values, and the order of sums."""
    for last, case in itertools.product((False, True), CASES.values()):
        problem = replace(case, device=DEVICE, dtype=dtype, channels_last=last)
        for algorithm in of_engine(engine):
            if not algorithm.not_supported_reasons(problem):
                which = [each for each in PASSES if algorithm.worth_measuring(problem, each)]
                contract = CONTRACT if algorithm.exact else LOOSE
                contract.check_values(algorithm, problem, which or PASSES[:1])
                contract.check_order(algorithm, problem, PASSES[2:])


def conv_step(conv, x):
    conv.zero_grad()
    y = conv(x)
    y.square().sum().backward()
    return [y.detach().clone(), x.grad.clone(), conv.weight.grad.clone(), conv.bias.grad.clone()]


def test_a_cuda_graph_replays_all_passes(engine):
    conv = torch.nn.Conv2d(16, 24, 3, 2, 1, device="cuda")
    x = torch.randn(4, 16, 20, 20, device="cuda", requires_grad=True)
    with yolo_rocm.patched(("cuda",), engine) as report:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                x.grad = None
                conv_step(conv, x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        x.grad = None
        conv.zero_grad()
        with torch.cuda.graph(graph):
            y = conv(x)
            y.square().sum().backward()
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
    assert set(report.engines()) == {engine}
    captured = [y.detach(), x.grad, conv.weight.grad, conv.bias.grad]
    expected = [t.detach().clone().requires_grad_() for t in (x, conv.weight, conv.bias)]
    true = F.conv2d(*expected, 2, 1)
    grads = torch.autograd.grad(true.square().sum(), expected)
    torch.testing.assert_close(captured, [true.detach(), *grads], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_threads_on_streams_of_their_own(engine, channels_last):
    layers = [torch.nn.Conv2d(32, 48, 3, 1, 1), torch.nn.Conv2d(32, 32, 3, 2, 1, groups=32)]
    layout = torch.channels_last if channels_last else torch.contiguous_format
    layers = [layer.cuda().to(memory_format=layout) for layer in layers]
    x = torch.randn(8, 32, 40, 40, device="cuda").to(memory_format=layout)
    wanted, results = [], []
    for layer in layers:
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        y = layer(leaf)
        wanted.append([y.detach(), *torch.autograd.grad(y.square().sum(), [leaf, layer.weight])])
    torch.cuda.synchronize()

    def work(layer, number):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(10):
                leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
                y = layer(leaf)
                found = [y.detach(), *torch.autograd.grad(y.square().sum(), [leaf, layer.weight])]
            torch.cuda.current_stream().synchronize()
        results.append((number, found))

    with installed(Patch(["cuda"], Planner(engine, remember=False))):
        threads = [threading.Thread(target=work, args=(layers[i % 2], i % 2)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 4
    for number, found in results:
        for ours, native in zip(found, wanted[number], strict=True):
            assert relative_error(ours, native.double()) < 1e-4  # of a whole tensor: single sums may be near zero


@pytest.mark.parametrize("groups", [1, 32], ids=["gemm", "depthwise"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
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
        found = [passes(*case) for case in cases]
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            found.append(passes(*cases[0]))
            torch.cuda.current_stream().synchronize()
    for ours, case in zip(found, [*cases, cases[0]], strict=True):
        # cuDNN does not support odd addresses in channels_last.
        aligned = [part.clone(memory_format=torch.preserve_format) if part is not one else part for part in case]
        for mine, native in zip(ours, passes(*aligned), strict=True):
            assert relative_error(mine, native.double()) < (1e-5 if dtype == torch.float32 else 1e-2)
            assert mine.stride() == native.stride()


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
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
        with yolo_rocm.patched(("cuda",), engine, memory_mb=1 << 15) as report:  # so much that no batch is cut
            y = F.conv2d(x, weight, None, 1, 1, 1, groups)
            gw = torch.ops.aten.convolution_backward(
                y, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups, [True, True, False]
            )
        assert set(report.engines()) == {engine}
        small = F.conv2d(x[-1:], weight, None, 1, 1, 1, groups)
        torch.testing.assert_close(y[-1:], small, rtol=1e-2, atol=1e-2)
        assert not y[:-1].any()
        assert small.any()
        wanted = torch.ops.aten.convolution_backward(
            small, x[-1:], weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups, [True, True, False]
        )
        torch.testing.assert_close(gw[0][-1:], wanted[0], rtol=2e-2, atol=2e-2)
        assert torch.isfinite(wanted[1]).all()
        torch.testing.assert_close(gw[1], wanted[1], rtol=2e-2, atol=float(wanted[1].float().std()) / 50)
        del y, gw
