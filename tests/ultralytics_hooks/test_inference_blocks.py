"""Ultralytics' blocks where nothing is trained: computed as one, and the ordinary way wherever anybody could tell."""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
import sys

import pytest
import torch
from torch import nn
from ultralytics.nn.modules import conv as blocks
from ultralytics.nn.modules.conv import Conv, DWConv
from ultralytics.nn.tasks import DetectionModel

from yolo_rocm.conv.inference import InferencePatch, computing
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import InferencePlanner, Planner
from yolo_rocm.conv.seam import installed as installed_convolutions
from yolo_rocm.engines.triton.available import missing_reason
from yolo_rocm.ultralytics_hooks import probes
from yolo_rocm.ultralytics_hooks.fused_blocks import fused_blocks
from yolo_rocm.ultralytics_hooks.inference_blocks import inference_blocks

from ..blocks import steps
from ..interpreted import interpreter

pytestmark = pytest.mark.skipif(
    bool(probes.missing(probes.INFERENCE_BLOCKS)), reason="this Ultralytics has other blocks"
)


@pytest.fixture
def on():
    """Put everything on, for the CPU."""
    patch = InferencePatch(("cpu",), InferencePlanner("gemm", remember=False))
    with computing(patch), inference_blocks():
        yield patch


def block(kind=Conv, act=True, fused=False, bias=False):
    torch.manual_seed(0)
    made = kind(4, 8, 3, act=act).eval()
    if bias:
        made.conv.bias = nn.Parameter(torch.randn(8))
    made.bn.running_mean.normal_()
    made.bn.running_var.uniform_(0.5, 2)
    nn.init.normal_(made.bn.weight)
    nn.init.normal_(made.bn.bias)
    if fused:
        from ultralytics.utils.torch_utils import fuse_conv_and_bn

        made.conv = fuse_conv_and_bn(made.conv, made.bn)
        del made.bn
        made.forward = made.forward_fuse
    return made.requires_grad_(False)


def image():
    return torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(3))


def expected(module, x):
    """Return what a block computes by its modules."""
    y = module.conv(x)
    return module.act(module.bn(y) if hasattr(module, "bn") else y)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "eval"])
@pytest.mark.parametrize("kind", [Conv, DWConv])
@pytest.mark.parametrize("act", [True, False, nn.ReLU(inplace=True), nn.LeakyReLU(0.2)], ids=str)
def test_a_block_is_computed_as_one_and_gives_what_it_gave(kind, act, fused, on, convolved):
    module, x = block(kind, act, fused), image()
    with torch.no_grad():
        found = module(x)
        assert convolved == []
        assert torch.allclose(found, expected(module, x), atol=1e-5)
    assert sum(served.forward_calls for served in on.report.served.values()) == 1


def test_a_bias_before_batch_norm_is_folded_too(on, convolved):
    module, x = block(bias=True), image()
    with torch.inference_mode():
        found = module(x)
        assert convolved == []
        assert torch.allclose(found, expected(module, x), atol=1e-5)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "eval"])
@pytest.mark.parametrize("part", ["conv.weight", "conv.bias", "bn.bias", "bn.running_var"])
def test_weights_that_change_are_seen(part, fused, on, convolved):
    module, x = block(fused=fused, bias=True), image()
    owner, name = part.split(".")
    if not hasattr(module, owner):
        pytest.skip("folded already")
    with torch.no_grad():
        before = module(x)
        getattr(getattr(module, owner), name).add_(0.5)
        after = module(x)
        assert convolved == []
        assert not torch.allclose(before, after)
        assert torch.allclose(after, expected(module, x), atol=1e-5)


@pytest.mark.parametrize("by", ["torch", "gemm", "triton"])
def test_statistics_that_a_training_pass_updates_are_seen(by, on, convolved):
    """Neither torch's kernels nor ours count these writes; the number of batches is counted."""
    if by == "triton" and missing_reason() is not None:
        pytest.skip(str(missing_reason()))
    module, x = block(), image()
    engine = contextlib.nullcontext() if by == "torch" else steps.served(by)
    with interpreter() if by == "triton" else contextlib.nullcontext(), engine, fused_blocks(), torch.no_grad():
        before = module(x)
        module.train()(3 * x + 1)
        after = module.eval()(x)
        wanted = module.act(module.bn(module.conv(x)))
    assert not torch.allclose(before, after, atol=1e-2)
    assert torch.allclose(after, wanted, atol=1e-4)


def test_weights_of_inference_mode_may_change_unseen_by_torch_and_are_read_each_time(on):
    module, x = block(fused=True), image()
    with torch.inference_mode():
        module.conv.weight = nn.Parameter(module.conv.weight.clone(), requires_grad=False)
        module(x)
        module.conv.weight.mul_(2)
        assert torch.allclose(module(x), expected(module, x), atol=1e-5)


def watched_block(how):
    """Return a block that must be called the ordinary way."""
    module = block(fused=True)
    if how == "hook":
        module.register_forward_hook(lambda *_: None)
    elif how == "hook of the convolution":
        module.conv.register_forward_pre_hook(lambda *_: None)
    elif how == "hook of the activation":
        module.act = nn.SiLU()
        module.act.register_forward_hook(lambda *_: None)
    elif how == "forward of its own":
        module.forward = lambda x: nn.functional.silu(module.conv(x)) + 1
    elif how == "forward of another block":
        module.forward = block(fused=True).forward
    elif how == "another activation":
        module.act = nn.GELU()
    elif how == "another convolution":
        module.conv = type("Mine", (nn.Conv2d,), {})(4, 8, 3, padding=1)
    elif how == "padding":
        module.conv.padding_mode = "reflect"
        module.conv._reversed_padding_repeated_twice = [1, 1, 1, 1]
    elif how == "stride, a list":
        module.conv.stride = [1, 1]
    elif how == "dilation, a number":
        module.conv.dilation = 1
    elif how == "precision":
        module.conv.bias.data = module.conv.bias.data.double()
        module.conv.weight.data = module.conv.weight.data.double()
        module.forward = lambda x: Conv.forward_fuse(module, x.double())
    return module


HOWS = [
    "hook", "hook of the convolution", "hook of the activation", "forward of its own", "forward of another block",
    "another activation", "another convolution", "padding", "stride, a list", "dilation, a number", "precision",
]  # fmt: skip


@pytest.mark.parametrize("how", HOWS)
def test_a_block_that_somebody_has_changed_is_called(how, on, convolved):
    module, x = watched_block(how), image()
    with torch.no_grad():
        assert module(x).shape == (2, 8, 6, 6)
    assert convolved
    assert not on.report.served


@pytest.mark.parametrize("name", ["conv.bias", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"])
def test_a_tensor_of_another_size_gets_torchs_own_message(name, on):
    """It would be spread over all channels where a BatchNorm is folded in."""
    module = block(bias=True)
    tensor = module.get_parameter(name) if not name.startswith("bn.running") else module.get_buffer(name)
    tensor.data = tensor.data[:1]
    said = r"bias to be 1-dimensional|should contain 8 elements not 1"
    with torch.no_grad(), pytest.raises(RuntimeError, match=said):
        module(image())


def test_a_subclass_with_a_forward_of_its_own_is_called(on, convolved):
    class Mine(Conv):
        def forward(self, x):
            return super().forward(x) + 1

    module, x = block(Mine), image()
    with torch.no_grad():
        assert torch.allclose(module(x), expected(module, x) + 1, atol=1e-5)
    assert convolved


def test_a_wrapper_around_the_block_of_the_class_is_called(monkeypatch, on, convolved):
    forward = Conv.forward

    @functools.wraps(forward)
    def mine(self, x):
        return forward(self, x) + 1

    monkeypatch.setattr(Conv, "forward", mine)
    module, x = block(), image()
    with torch.no_grad():
        assert torch.allclose(module(x), expected(module, x) + 1, atol=1e-5)


def test_with_gradients_autocast_or_hooks_on_all_modules_blocks_are_called(on, convolved):
    module, x = block(fused=True), image()
    module(x)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        module(x)
    hook = nn.modules.module.register_module_forward_pre_hook(lambda *_: None)
    with torch.no_grad():
        module(x)
    hook.remove()
    assert len(convolved) == 3
    assert not on.report.served


def test_an_epsilon_that_torch_refuses_is_left_to_the_module(on):
    module = block()
    module.bn.eps = 0.0
    with contextlib.suppress(ValueError), torch.no_grad():
        module(image())
    assert not on.report.served


def test_a_trace_has_the_convolution_in_it(on):
    module, x = block(fused=True), image()
    with torch.no_grad():
        traced = torch.jit.trace(module, x)
        assert "_convolution" in str(traced.inlined_graph)
        assert torch.allclose(traced(x), module(x), atol=1e-5)


def test_a_compiled_block_is_compiled_as_it_is(on):
    if not hasattr(torch, "compile") or torch.__version__ < "2.4":
        pytest.skip("torch does not say whether it compiles")
    inner, x, graphs = block(fused=True), image(), []
    module = nn.Sequential(inner, nn.Identity())

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    with torch.no_grad():
        found = torch.compile(module, backend=backend)(x)
        assert torch.allclose(found, expected(inner, x), atol=1e-5)
    assert len(graphs) == 1
    assert any("conv" in str(node.target) for graph in graphs for node in graph.graph.nodes)
    assert not on.report.served


def test_nothing_is_left_behind():
    module = block(fused=True)
    before = pickle.dumps(module)
    patch = InferencePatch(("cpu",), InferencePlanner("gemm", remember=False))
    with computing(patch), inference_blocks(), inference_blocks():
        assert "__call__" in vars(Conv)
        with torch.no_grad():
            module(image())
        other = copy.deepcopy(module)
        assert pickle.dumps(module) == before
    assert "__call__" not in vars(Conv)
    assert Conv.__call__ is nn.Module.__call__
    with torch.no_grad():
        assert torch.equal(other(image()), module(image()))


def test_an_ultralytics_with_other_blocks_is_left_alone(monkeypatch, on):
    module = sys.modules["yolo_rocm.ultralytics_hooks.inference_blocks"]
    monkeypatch.setattr(module, "missing", lambda feature: ("changed",))
    call = blocks.Conv.__call__
    with inference_blocks():
        assert blocks.Conv.__call__ is call


@pytest.mark.parametrize(("model", "fused"), [("yolov8n.yaml", False), ("yolo11n.yaml", True)])
def test_whole_networks(model, fused, convolved):
    torch.manual_seed(0)
    network = DetectionModel(model, verbose=False).eval()
    if fused:
        network = network.fuse(verbose=False)
    network.requires_grad_(False)
    x = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        wanted = network(x)
        convolved.clear()
        patch = InferencePatch(("cpu",), InferencePlanner("gemm", remember=False))
        convolutions = Patch(("cpu",), Planner("gemm", remember=False))
        with computing(patch), inference_blocks(), installed_convolutions(convolutions):
            found = network(x)
    plain = {id(m.conv) for m in network.modules() if type(m) in (Conv, DWConv)}
    assert not [each for each in convolved if id(each) in plain]
    counted = [
        sum(each.forward_calls for each in report.served.values()) for report in (patch.report, convolutions.report)
    ]
    assert counted[0] == counted[1]  # those of the head are computed here as well
    assert set(convolutions.report.engines()) == {"gemm"}
    assert convolutions.report.table()
    assert torch.allclose(found[0], wanted[0], atol=1e-3, rtol=1e-3)
