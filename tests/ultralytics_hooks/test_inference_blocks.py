"""Ultralytics' blocks where nothing is trained: computed as one, and the ordinary way wherever anybody could tell."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from ultralytics.nn.modules.conv import Conv, DWConv
from ultralytics.nn.tasks import DetectionModel

from yolo_rocm.conv.inference import InferencePatch, computing
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import InferencePlanner, Planner
from yolo_rocm.conv.seam import installed as installed_convolutions
from yolo_rocm.ultralytics_hooks import probes
from yolo_rocm.ultralytics_hooks.fused_blocks import fused_blocks
from yolo_rocm.ultralytics_hooks.inference_blocks import inference_blocks

from ..blocks import steps

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
@pytest.mark.parametrize(("kind", "act"), [(Conv, True), (DWConv, nn.LeakyReLU(0.2))])
def test_a_block_is_computed_as_one_and_gives_what_it_gave(kind, act, fused, on, convolved):
    module, x = block(kind, act, fused), image()
    with torch.no_grad():
        found = module(x)
        assert convolved == []
        assert torch.allclose(found, expected(module, x), atol=1e-5)
    assert sum(served.forward_calls for served in on.report.served.values()) == 1


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "eval"])
@pytest.mark.parametrize("part", ["conv.weight", "conv.bias", "bn.running_var"])
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


def test_statistics_that_a_training_pass_updates_are_seen(on):
    """Neither torch's kernels nor ours count these writes; the number of batches is counted."""
    module, x = block(), image()
    with steps.served("gemm"), fused_blocks(), torch.no_grad():
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


def other_precision(module):
    module.conv.double()
    module.forward = lambda x: Conv.forward_fuse(module, x.double())


def hooked_activation(module):
    module.act = nn.SiLU()
    module.act.register_forward_hook(lambda *_: None)


def reflected(module):
    module.conv.padding_mode = "reflect"
    module.conv._reversed_padding_repeated_twice = [1, 1, 1, 1]


HOWS = {
    "hook": lambda module: module.register_forward_hook(lambda *_: None),
    "hook of the convolution": lambda module: module.conv.register_forward_pre_hook(lambda *_: None),
    "hook of the activation": hooked_activation,
    "forward of its own": lambda module: setattr(module, "forward", lambda x: nn.functional.silu(module.conv(x)) + 1),
    "forward of another block": lambda module: setattr(module, "forward", block(fused=True).forward),
    "another activation": lambda module: setattr(module, "act", nn.GELU()),
    "another convolution": lambda module: setattr(module, "conv", type("Mine", (nn.Conv2d,), {})(4, 8, 3, padding=1)),
    "padding": reflected,
    "precision": other_precision,
}


@pytest.mark.parametrize("how", HOWS)
def test_a_block_that_somebody_has_changed_is_called(how, on, convolved):
    module, x = block(fused=True), image()
    HOWS[how](module)
    with torch.no_grad():
        assert module(x).shape == (2, 8, 6, 6)
    assert convolved
    assert not on.report.served


def test_a_subclass_with_a_forward_of_its_own_is_called(on, convolved):
    class Mine(Conv):
        def forward(self, x):
            return super().forward(x) + 1

    module, x = block(Mine), image()
    with torch.no_grad():
        assert torch.allclose(module(x), expected(module, x) + 1, atol=1e-5)
    assert convolved


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


def test_whole_networks(convolved):
    torch.manual_seed(0)
    network = DetectionModel("yolo11n.yaml", verbose=False).eval().fuse(verbose=False).requires_grad_(False)
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
    assert torch.allclose(found[0], wanted[0], atol=1e-3, rtol=1e-3)
