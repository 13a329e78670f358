"""The triton engine on a GPU, NVIDIA or AMD; skipped where there is none or Triton does not compile for it."""

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
from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME
from yolo_rocm.conv.heuristics import preferred
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import CONVOLUTION, Operands, Planner
from yolo_rocm.conv.seam import installed
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.precision import without_tf32
from yolo_rocm.engines.triton import direct, launch
from yolo_rocm.engines.triton.available import device_reason, triton_version
from yolo_rocm.engines.tuning import compile_ahead
from yolo_rocm.errors import EngineError

from ..torch_samples import CONVOLUTIONS
from .problems import MOST_RATIO, error_ratios, in_doubles, made_problem, native_passes, random_problem
from .test_algorithms import assert_as_exact_as_native, gradients, sample_call

DEVICE = "cuda:0"
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.skipif(torch.cuda.is_available() and device_reason(DEVICE) is not None, reason="no Triton for it"),
    pytest.mark.usefixtures("ieee"),
]
TRITON = [a for a in ALGORITHMS if a.engine == "triton"]
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
    problems = [layer.problem for layer in model_layers(model, 320, 2, dtype, DEVICE, channels_last)]
    compile_ahead(CONVOLUTION, problems, lambda p: [a for a in TRITON if not a.not_supported_reasons(p)])
    worst = {}
    for problem in problems:
        operands = Operands.of(problem)
        exact = native_passes(problem, in_doubles(operands))
        ratios = error_ratios(BY_NAME["unfold"], problem, run)
        assert max(ratios.values()) <= MOST_RATIO
        for algorithm in TRITON:
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
        with yolo_rocm.patched(("cuda",), "triton"):
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

    problem = random_problem(random.Random(seed), dtype)
    problem = replace(problem, device=DEVICE)
    with monkeypatch.context() as patch:
        for name in names:
            patch.setattr(torch.Tensor, name, poisoned(name))
        for which in PASSES:
            for name in preferred(problem, which, triton=True):
                algorithm = BY_NAME.get(name)
                if algorithm is not None and not algorithm.not_supported_reasons(problem):
                    ratios = error_ratios(algorithm, problem, run, passes=(which,))
                    assert ratios[which] <= MOST_RATIO, (name, which, str(problem), ratios)


def conv_step(conv, x):
    conv.zero_grad()
    y = conv(x)
    y.square().sum().backward()
    return [y.detach().clone(), x.grad.clone(), conv.weight.grad.clone(), conv.bias.grad.clone()]


def test_a_cuda_graph_replays_all_passes():
    conv = torch.nn.Conv2d(16, 24, 3, 2, 1, device="cuda")
    x = torch.randn(4, 16, 20, 20, device="cuda", requires_grad=True)
    with yolo_rocm.patched(("cuda",), "triton"):
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
    captured = [y.detach(), x.grad, conv.weight.grad, conv.bias.grad]
    expected = [t.detach().clone().requires_grad_() for t in (x, conv.weight, conv.bias)]
    true = F.conv2d(*expected, 2, 1)
    grads = torch.autograd.grad(true.square().sum(), expected)
    torch.testing.assert_close(captured, [true.detach(), *grads], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_threads_on_streams_of_their_own(channels_last):
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

    with installed(Patch(["cuda"], Planner("triton", remember=False))):
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
def test_a_launch_is_repeated_with_what_suits_it(channels_last, dtype, groups):
    """From the second call on, launches skip Triton: other strides, odd addresses and streams must not mix them up."""
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
    with installed(Patch(["cuda"], Planner("triton", remember=False))):
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


@pytest.mark.parametrize("groups", [1, 32], ids=["gemm", "depthwise"])
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_the_private_launch_does_what_the_public_one_does(monkeypatch, channels_last, groups):
    """To the last bit, with versions of Triton that it is taken for; with others nothing is repeated."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    layer = torch.nn.Conv2d(32, 32, 3, 1, 1, groups=groups, device="cuda").half().to(memory_format=layout)
    x = torch.randn(4, 32, 20, 20, device="cuda").half().contiguous(memory_format=layout)

    def passes():
        launch.forget()
        found = []
        with installed(Patch(["cuda"], Planner("triton", remember=False))):
            for _ in range(3):
                leaf = x.detach().requires_grad_()
                y = layer(leaf)
                found.append([y.detach(), *torch.autograd.grad(y.float().square().sum(), [leaf, layer.weight])])
        return found, len(launch._ready)

    private, repeated = passes()
    assert direct.given_up() is None
    assert (repeated > 0) == (direct.OLDEST <= triton_version() <= direct.NEWEST)
    with monkeypatch.context() as patch:
        patch.setattr(direct, "NEWEST", (3, 0))
        public, repeated = passes()
    assert repeated == 0
    launch.forget()
    for ours, wanted in zip(private, public, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, wanted, strict=True))


def test_the_gradient_of_the_weight_is_the_same_every_time():
    problem = model_layers("yolov8n.yaml", 320, 8, torch.float16, DEVICE, True)[4].problem
    operands = Operands.of(problem)
    for algorithm in TRITON:
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
    for groups in (1, 16):
        weight = 0.1 * torch.randn(16, 16 // groups, 3, 3, device="cuda", dtype=torch.float16).to(memory_format=layout)
        with yolo_rocm.patched(("cuda",), "triton", memory_mb=1 << 15) as report:  # so much that no batch is cut
            y = F.conv2d(x, weight, None, 1, 1, 1, groups)
            gw = torch.ops.aten.convolution_backward(
                y, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups, [True, True, False]
            )
        assert set(report.engines()) == {"triton"}
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


@pytest.mark.skipif(torch.version.hip is not None, reason="AMD GPUs have no TF32")
def test_tf32_only_where_the_user_allows_it():
    problem = model_layers("yolov8n.yaml", 320, 2, torch.float32, DEVICE, True)[6].problem
    operands = Operands.of(problem)
    exact = native_passes(problem, in_doubles(operands))["forward"]
    algorithm = BY_NAME["triton_l"]

    def error():
        return float((run(algorithm, problem, "forward", operands).double() - exact).norm() / exact.norm())

    ieee_error = error()
    torch.backends.cuda.matmul.allow_tf32 = True
    assert error() > 50 * ieee_error
    torch.backends.cuda.matmul.allow_tf32 = False
    assert error() == ieee_error < 1e-6


@pytest.mark.skipif(torch.version.hip is not None, reason="AMD GPUs have no TF32")
@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has no fp32_precision")
def test_tf32_by_the_newer_precision_setting():
    problem = replace(made_problem((2, 64, 40, 40), 64, device=DEVICE), channels_last=True)
    operands = Operands.of(problem)
    exact = native_passes(problem, in_doubles(operands))["forward"]
    before = torch.backends.cuda.matmul.fp32_precision

    def error():
        return relative_error(run(BY_NAME["triton_l"], problem, "forward", operands), exact)

    ieee_error = error()
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert error() > 50 * ieee_error
        with without_tf32():
            assert error() == ieee_error
        assert error() > 50 * ieee_error
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert error() == ieee_error < 1e-6


def test_what_was_tuned_is_not_tuned_by_the_next_run(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))  # nothing compiled before
    problems = [layer.problem for layer in model_layers("yolov8n.yaml", 640, 8, torch.float16, DEVICE, True)]
    assert len(Planner("auto", vendor_library=True).tune(problems)) == len(set(problems))
    assert Planner("auto", vendor_library=True).tune(problems) == {}
