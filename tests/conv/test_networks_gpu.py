"""Networks on a GPU through torch.compile, device graphs and streams; skipped where there is none."""

from __future__ import annotations

import copy
import importlib

import pytest
import torch
from torch import nn
from ultralytics.nn.tasks import DetectionModel

import yolo_rocm
from yolo_rocm.conv.inference import InferencePatch, computing
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import InferencePlanner, Planner
from yolo_rocm.conv.seam import installed
from yolo_rocm.engines.backend_flags import vendor_off
from yolo_rocm.engines.hip.available import device_reason as hip_reason
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.graphs.inference import CALLS_BEFORE_MEASURING
from yolo_rocm.graphs.tree import flattened
from yolo_rocm.session.run import Run
from yolo_rocm.session.session import Session

from .test_compiling import check_promises, laid

DEVICE, CUDA = "cuda:0", ("cuda",)
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch < 2 has no torch.compile"),
    pytest.mark.usefixtures("ieee"),
]
STEPS = 5  # Inductor's device graphs are warmed up, recorded and replayed within


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
    if engine == "hip" and (why := hip_reason(DEVICE)) is not None:
        pytest.skip(why)
    wide = network()
    model = copy.deepcopy(wide).half()
    images = [torch.rand(2, 3, 160, 160, device=DEVICE) for _ in range(3)]
    predict = {"fuse": "on", "graph": graph, "layout": layout}
    session = Session("generic", {"predict": predict, "conv": {"tune": "off", "engine": engine}})
    with torch.inference_mode():
        exact = [flattened(wide(x))[0] for x in images]
        stock = [flattened(model(x.half()))[0] for x in images]
        run = Run(session, {})
        with run.applied(), run.at_work():
            for _ in range(CALLS_BEFORE_MEASURING + 1):
                model(images[0].half())
            ours = [flattened(model(x.half()))[0] for x in images]
            assert session.inference._networks.recorded == (graph == "on")
    for results, theirs, right in zip(ours, stock, exact, strict=True):
        for one, other, value in zip(results, theirs, right, strict=True):
            assert relative_error(one, value) <= 2 * relative_error(other, value) + 1e-4


@pytest.fixture
def served(engine):
    """Everything is on, also for a plain network: its weights are packed."""
    patch = Patch(CUDA, Planner(engine, remember=False))
    inference = InferencePatch(CUDA, InferencePlanner(engine, remember=False))
    with installed(patch), computing(inference):
        yield
    assert inference.report.served


def plain(seed=0):
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 64, 1))
    return layers.to(DEVICE).requires_grad_(False)


def some_input():
    return torch.randn(2, 64, 32, 32, generator=torch.Generator().manual_seed(1)).to(DEVICE)


def in_doubles(net, x):
    """Return the right result, which no patch computes."""
    return copy.deepcopy(net).cpu().double()(x.cpu().double()).to(DEVICE)


def test_a_weight_is_packed_on_the_stream_that_reads_it(served):
    """One stream is far behind when the next computes the same network."""
    warm, net, x = plain(1), plain(), some_input()
    with torch.no_grad():
        warm(x)  # compiles
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(2 * 10**8)
            late = net(x)
        with torch.cuda.stream(torch.cuda.Stream()):
            early = net(x)
        torch.cuda.synchronize()
    for result in (early, late):
        assert relative_error(result, in_doubles(net, x)) < 1e-4


def test_a_graph_of_the_users_reads_weights_where_they_are(served):
    """As torch's kernels do: a weight that changes is seen by the next replay, and nothing that it reads is freed."""
    net, x = plain(), some_input()
    with torch.no_grad():
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
            others = [torch.randn(64, 64, 3, 3, device=DEVICE) for _ in range(64)]
            graph.replay()
            assert relative_error(y, in_doubles(net, x)) < 1e-4
            del others


@pytest.mark.parametrize("vendor", [False, True], ids=["vendor off", "vendor on"])
def test_results_are_laid_out_as_promised(vendor):
    assert vendor or not all(check_promises("cuda", "gemm", vendor))  # torch promises something else


def trained(last, mode, autocast):
    """Return the losses of some steps and what the trained model then predicts."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU(),
        nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU(),
        nn.Conv2d(32, 32, 3, 1, 1, groups=32), nn.Conv2d(32, 16, 1), nn.ConvTranspose2d(16, 8, 2, 2),
    ).to("cuda", memory_format=torch.channels_last if last else torch.contiguous_format)  # fmt: skip
    x = laid(torch.rand(4, 3, 32, 32, device="cuda"), last)
    run = torch.compile(net, mode=mode, dynamic=False) if mode else net
    optimizer, losses = torch.optim.SGD(net.parameters(), 0.01), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = run(x).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
    run.eval()
    with torch.no_grad():
        return [*losses, *(run(x).clone() for _ in range(3))]


@pytest.mark.parametrize("engine", ["gemm", "triton"])
@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune-no-cudagraphs"])
def test_every_mode_trains_through_the_seam(monkeypatch, tmp_path, mode, last, engine):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    importlib.import_module("torch._dynamo").reset()
    with vendor_off("cuda"):
        expected = trained(last, None, False)
        for _ in range(2):
            with yolo_rocm.patched(CUDA, engine) as report:
                torch.testing.assert_close(trained(last, mode, False), expected, rtol=1e-2, atol=1e-3)
                trained(last, mode, True)
            assert {served.plan.engine for served in report.served.values()} == {engine}
            # With max-autotune, Inductor's own template serves the forward passes in which it is faster.
            assert mode.startswith("max-autotune") or all(served.forward_calls for served in report.served.values())
            assert any(served.backward_calls for served in report.served.values())
            torch.testing.assert_close(trained(last, mode, False), expected, rtol=1e-2, atol=1e-3)
