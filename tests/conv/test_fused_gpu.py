"""Convolution, bias and activation in one kernel on a GPU, and whole networks, recorded too; skipped without one."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from ultralytics.nn.tasks import DetectionModel

from tools.exactness import allowed_error
from yolo_rocm.conv.algorithms import INFERENCE_ALGORITHMS
from yolo_rocm.conv.inference import InferencePatch, computing
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import InferencePlanner, Planner
from yolo_rocm.conv.seam import installed
from yolo_rocm.engines.hip.available import device_reason as hip_device_reason
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.precision import without_tf32
from yolo_rocm.engines.triton.available import device_reason
from yolo_rocm.graphs.inference import CALLS_BEFORE_MEASURING
from yolo_rocm.graphs.tree import flattened
from yolo_rocm.session.run import Run
from yolo_rocm.session.session import Session

from ..engines.contract import Contract
from .cases import CASES, activated, conv, exact

DEVICE = "cuda:0"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
EPILOGUED = [algorithm for algorithm in INFERENCE_ALGORITHMS if algorithm.activates]
CONTRACT = Contract(InferencePlanner.operator, exact, allowed_error)
REASONS = {"triton": device_reason, "hip": hip_device_reason}


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("algorithm", EPILOGUED, ids=lambda each: each.name)
def test_every_kernel_and_tile(algorithm, dtype, last):
    why = REASONS[algorithm.engine](DEVICE)
    if why is not None:
        pytest.skip(why)
    layers = [CASES[name] for name in ("3x3", "image", "depthwise")]
    layers += [conv((2, 64, 20, 20), 64, (3, 3), (1, 1), (1, 1)), conv((1, 128, 20, 20), 64, (1, 1))]
    given = [replace(activated(layer), dtype=dtype, channels_last=last, device=DEVICE) for layer in layers]
    able = [problem for problem in given if not algorithm.not_supported_reasons(problem)]
    with without_tf32():
        for problem in able:
            CONTRACT.check_values(algorithm, problem)
    # Not every tile of Triton is for every family, and hip's Winograd is of fp32.
    assert able or algorithm.engine == "triton" or dtype != torch.float32


def network():
    torch.manual_seed(0)
    made = DetectionModel("yolov8n.yaml", verbose=False).eval()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):  # so that layers matter
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(module.weight, 0.7, 1.8)
            nn.init.normal_(module.bias, 0, 0.3)
    return made.fuse(verbose=False).to(DEVICE).requires_grad_(False)


@pytest.mark.parametrize("graph", ["off", "on"])
@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
@pytest.mark.parametrize("engine", ["auto", "hip"])
def test_whole_networks_in_half_precision_are_as_near_to_fp32_as_torch_is(engine, graph, layout):
    if engine == "hip" and (why := hip_device_reason(DEVICE)) is not None:
        pytest.skip(why)
    wide = network()
    model = copy.deepcopy(wide).half()
    images = [torch.rand(2, 3, 160, 160, device=DEVICE) for _ in range(3)]
    predict = {"fuse": "on", "graph": graph, "layout": layout}
    session = Session("generic", {"predict": predict, "conv": {"tune": "off", "engine": engine}})
    with torch.inference_mode():
        exact = [flattened(wide(x))[0] for x in images]
        stock = [flattened(model(x.half()))[0] for x in images]
        with Run(session, {}).applied(), session.inference.at_work():
            for _ in range(CALLS_BEFORE_MEASURING + 1):
                model(images[0].half())
            ours = [flattened(model(x.half()))[0] for x in images]
            assert session.inference._networks.recorded == (graph == "on")
    for found, theirs, right in zip(ours, stock, exact, strict=True):
        for one, other, wanted in zip(found, theirs, right, strict=True):
            assert relative_error(one, wanted) <= 2 * relative_error(other, wanted) + 1e-4


@pytest.fixture(params=["triton", "hip"])
def served(request):
    """Return a function that puts everything on, also for a plain network: its weights are packed."""
    if (why := REASONS[request.param](DEVICE)) is not None:
        pytest.skip(why)

    @contextlib.contextmanager
    def on():
        patch = Patch(("cuda",), Planner(request.param, remember=False))
        inference = InferencePatch(("cuda",), InferencePlanner(request.param, remember=False))
        with installed(patch), computing(inference):
            yield
        assert inference.report.served

    with without_tf32():
        yield on


def plain(seed=0):
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 64, 1))
    return layers.to(DEVICE).requires_grad_(False)


def some_input():
    return torch.randn(2, 64, 32, 32, generator=torch.Generator().manual_seed(1)).to(DEVICE)


def test_a_weight_is_packed_on_the_stream_that_reads_it(served):
    """One stream is far behind when the next computes the same network."""
    warm, net, x = plain(1), plain(), some_input()
    expected = net(x)
    with served(), torch.no_grad():
        warm(x)  # compiles
        torch.cuda.synchronize()
        first, second = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(first):
            torch.cuda._sleep(2 * 10**8)
            late = net(x)
        with torch.cuda.stream(second):
            early = net(x)
        torch.cuda.synchronize()
    assert relative_error(early, expected.double()) < 1e-4
    assert relative_error(late, expected.double()) < 1e-4


@pytest.mark.parametrize("trained", [False, True], ids=["predicting", "training"])
def test_what_inductor_records_keeps_no_packed_weight_in_its_pool(served, trained):
    """Its pools are checked for memory that it does not track."""
    net, x = plain().requires_grad_(trained), some_input()
    expected = net(x).detach()
    torch._dynamo.reset()
    run = torch.compile(net, mode="reduce-overhead")
    serving = served() if not trained else installed(Patch(("cuda",), Planner("triton", remember=False)))
    with serving:
        for _ in range(5):
            net.zero_grad()
            torch.compiler.cudagraph_mark_step_begin()  # gradients of the step before are gone
            with torch.set_grad_enabled(trained):
                y = run(x)
            assert relative_error(y.detach(), expected.double()) < 1e-4
            if trained:
                y.square().mean().backward()
    torch._dynamo.reset()


def test_a_graph_of_the_users_reads_weights_where_they_are(served):
    """As torch's kernels do: a weight that changes is seen by the next replay, and nothing that it reads is freed."""
    net, x = plain(), some_input()
    with served(), torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            net(x)
            net(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = net(x)
        for change in (lambda weight: weight.mul_(2), lambda weight: weight.data.mul_(-0.5)):
            change(net[0].weight)
            expected = net(x).clone()
            others = [torch.randn(64, 64, 3, 3, device=DEVICE) for _ in range(64)]
            graph.replay()
            assert relative_error(y, expected.double()) < 1e-4
            del others


@pytest.mark.parametrize("how", ["foreach", "fused"])
def test_what_optimizers_write_is_seen(served, how):
    """Neither raises versions on a GPU. The weights are those of a network that is evaluated between its steps."""

    def losses(on):
        net, x, seen = plain(), some_input(), []
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2, **{how: True})
        for _ in range(4):
            net.requires_grad_(True)
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            net.requires_grad_(False)
            with on(), torch.no_grad():
                seen.append(float(net(x).square().mean()))
        return seen

    stock = losses(contextlib.nullcontext)
    assert len(set(stock)) == 4
    assert losses(served) == pytest.approx(stock, rel=1e-3)
