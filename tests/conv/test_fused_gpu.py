"""Convolution, bias and activation in one kernel on a GPU, and whole networks, recorded too; skipped without one."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from ultralytics.nn.tasks import DetectionModel

from yolo_rocm.conv.exactness import allowed_error
from yolo_rocm.conv.fused.algorithms import FUSED_ALGORITHMS, Epilogued
from yolo_rocm.conv.fused.hip import HipEpilogued
from yolo_rocm.conv.fused.plan import FUSED, Operands
from yolo_rocm.engines.hip.available import device_reason as hip_device_reason
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.precision import without_tf32
from yolo_rocm.engines.triton.available import device_reason
from yolo_rocm.graphs.inference import CALLS_BEFORE_MEASURING
from yolo_rocm.graphs.tree import flattened
from yolo_rocm.session.session import Session

from .test_fused_interpreter import in_fp64, of_kind, problem

DEVICE = "cuda:0"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
EPILOGUED = [algorithm for algorithm in FUSED_ALGORITHMS if isinstance(algorithm, (Epilogued, HipEpilogued))]
REASONS = {"triton": device_reason, "hip": hip_device_reason}


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("algorithm", EPILOGUED, ids=lambda each: each.name)
def test_every_kernel_and_tile(algorithm, dtype, last):
    why = REASONS[algorithm.engine](DEVICE)
    if why is not None:
        pytest.skip(why)
    tried = 0
    for made in (
        of_kind(algorithm, dtype, last, activation="silu"),
        problem((2, 64, 20, 20), 64, 3, dtype=dtype, last=last, activation="leaky_relu", slope=0.1),
        problem((1, 128, 20, 20), 64, 1, dtype=dtype, last=last, activation="silu"),
    ):
        given = FUSED.cast(made, dtype, DEVICE)
        if algorithm.not_supported_reasons(given):
            continue
        operands = Operands.of(given)
        with without_tf32():
            found = FUSED.run(algorithm, given, "forward", operands)
        tried += 1
        assert relative_error(found, in_fp64(given, operands)) <= allowed_error(given.conv, "forward")
    assert (
        tried or algorithm.engine == "triton" or dtype != torch.float32
    )  # not every tile of triton is for every family


def network():
    torch.manual_seed(0)
    made = DetectionModel("yolov8n.yaml", verbose=False).eval()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):  # so that layers matter
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(module.weight, 0.7, 1.8)
            nn.init.normal_(module.bias, 0, 0.3)
    return made.fuse(verbose=False).to(DEVICE)


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
        with session.active():
            for _ in range(CALLS_BEFORE_MEASURING + 1):
                model(images[0].half())
            ours = [flattened(model(x.half()))[0] for x in images]
            assert session.inference._networks.recorded == (graph == "on")
    for found, theirs, right in zip(ours, stock, exact, strict=True):
        for one, other, wanted in zip(found, theirs, right, strict=True):
            assert relative_error(one, wanted) <= 2 * relative_error(other, wanted) + 1e-4
