"""The seam of normalisations: by whom each BatchNorm is computed, also where torch's own kernels raise."""

from __future__ import annotations

import copy

import pytest
import torch

from yolo_rocm.engines import dispatcher
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.errors import EngineError
from yolo_rocm.norm import seam
from yolo_rocm.norm.algorithms import BY_NAME
from yolo_rocm.norm.seam import installed

from ..sick_vendor import MESSAGE, sick_norm
from .calls import made
from .normalisations import CPU, needs_native, patch_of, patched


@pytest.fixture
def layer():
    """A BatchNorm and an input that want gradients."""
    torch.manual_seed(0)
    return torch.nn.BatchNorm2d(4), torch.randn(2, 4, 5, 5, requires_grad=True)


@pytest.fixture
def older(monkeypatch):
    """Torch hands out no kernels, as before 2.9."""
    monkeypatch.setattr(dispatcher, "_HANDED_OUT", None)
    monkeypatch.setattr(dispatcher, "HANDS_OUT", False)
    with STATE.replaced():
        yield


def step(bn, x):
    """Return what a step of a layer computes: output, gradients, running statistics; the layer stays as it is."""
    bn, leaf = copy.deepcopy(bn), x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    y = bn(leaf)
    y.square().sum().backward()
    grads = [leaf.grad, *(parameter.grad for parameter in bn.parameters())]
    return [y.detach(), *grads, *(b.float() for b in bn.buffers())]


@pytest.mark.parametrize("training", [True, False])
def test_ours_works_where_torchs_own_kernels_are_sick(layer, training):
    bn, x = layer
    bn.train(training)
    expected = step(bn, x)
    with sick_norm(), pytest.raises(RuntimeError, match=MESSAGE):
        step(bn, x)
    with sick_norm(), patched(CPU, "gemm") as report:
        found = step(bn, x)
    (served,) = report.served.values()
    assert (served.forward_calls, served.backward_calls, served.plan.engine) == (1, 1, "gemm")
    assert served.problem.training is training
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@needs_native
@pytest.mark.parametrize("engine", ["vendor", "aten"])
def test_native_kernels_are_reached_below_the_seam_and_forgotten_with_the_patch(layer, engine):
    with sick_norm(), patched(CPU, engine), pytest.raises(RuntimeError, match=MESSAGE):
        step(*layer)
    expected = step(*layer)
    assert dispatcher.below("native_batch_norm", "CPU") is None
    with patched(CPU, engine) as report:
        assert dispatcher.below("native_batch_norm", "CPU") is not None
        found = step(*layer)
    assert dict(report.engines()) == {engine: 1}
    assert all(map(torch.equal, found, expected))
    assert not dispatcher.hides("native_batch_norm", "CPU")


@pytest.mark.parametrize("engine", ["vendor", "aten"])
def test_torch_is_left_alone_where_it_is_asked_for_and_hands_out_nothing(older, layer, engine):
    with patched(CPU, engine) as report:
        step(*layer)
        assert seam.serving("cpu") is None
    assert not report.served
    with pytest.raises(EngineError, match="gives no way to its own BatchNorm"):
        patch_of(engine).lookup(layer[1], (None, None, None, None), True)
    assert BY_NAME["aten"].not_supported_reasons(made(device="cuda:0"))


@pytest.mark.parametrize("kind", ["plain", "without parameters", "half", "channels_last"])
def test_where_torch_hands_out_nothing_plain_pytorch_computes_what_no_patch_serves(older, layer, kind):
    """A patch that ends while another thread calls its kernels leaves them in on an older torch."""
    bn, x = layer
    if kind == "without parameters":
        bn = torch.nn.BatchNorm2d(4, affine=False)
    x = x.detach().bfloat16() if kind == "half" else x.detach()
    x = x.contiguous(memory_format=torch.channels_last) if kind == "channels_last" else x
    for training in (True, False):
        bn.train(training)
        expected = step(bn, x)
        with sick_norm(), patched(CPU, "gemm") as report:
            seam._seam.serving = {}
            found = step(bn, x)
        assert not report.served
        room = 2e-2 if kind == "half" else 1e-4
        for ours, theirs in zip(found, expected, strict=True):
            assert (ours.dtype, ours.stride()) == (theirs.dtype, theirs.stride())
            torch.testing.assert_close(ours, theirs, rtol=room, atol=room)


def test_a_graph_outlives_the_patch_and_precedes_it(layer):
    bn, x = layer
    expected = torch.autograd.grad(bn(x).square().sum(), [x, *bn.parameters()])
    with patched(CPU, "gemm"):
        inside = bn(x).square().sum()
    outside = bn(x).square().sum()
    torch.testing.assert_close(torch.autograd.grad(inside, [x, *bn.parameters()]), expected)
    with patched(CPU, "gemm"):
        torch.testing.assert_close(torch.autograd.grad(outside, [x, *bn.parameters()]), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_traced_module_holds_an_ordinary_batch_norm(layer):
    bn, x = layer
    with patched(CPU, "gemm"):
        traced = torch.jit.trace(bn.eval(), x.detach(), check_trace=False)
    kinds = [node.kind() for node in traced.inlined_graph.nodes()]
    assert kinds.count("aten::batch_norm") == 1
    assert not {"aten::addcmul", "aten::var_mean"} & set(kinds)


def test_the_newest_patch_serves_and_an_interrupt_inside_a_pass_restores(layer, monkeypatch):
    outer, inner = patch_of("gemm"), patch_of("gemm")
    with installed(outer):
        with installed(inner):
            layer[0](layer[1])
        layer[0](layer[1])
        assert seam.serving("cpu") is outer
    assert [sum(s.forward_calls for s in p.report.served.values()) for p in (inner, outer)] == [1, 1]

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("yolo_rocm.norm.pytorch.Torch.forward", interrupted)
    with pytest.raises(KeyboardInterrupt), installed(patch_of("gemm")):
        layer[0](layer[1])
    assert seam.serving("cpu") is None
    with sick_norm(), pytest.raises(RuntimeError, match=MESSAGE):
        step(*layer)


def test_a_call_is_found_again_until_plans_change(layer):
    bn, x = layer
    patch = patch_of()
    held = (bn.weight, bn.bias, bn.running_mean, bn.running_var)
    call = patch.lookup(x, held, True)
    assert patch.lookup(x, held, True) is call
    assert patch.route(call.route.problem) is call.route
    patch.planner.use({call.route.problem: {"forward": "torch", "backward": "torch"}})
    again = patch.lookup(x, held, True)
    assert again is not call
    assert again.route.served is call.route.served
    assert patch.renewed().planner is patch.planner
    assert not patch.renewed().report.served
    for place in range(4):  # of another device, also after a good call
        elsewhere = [each.to("meta") if number == place else each for number, each in enumerate(held)]
        assert patch.lookup(x, tuple(elsewhere), True) is None
    assert patch.lookup(x[:0], held, True) is None  # nothing to compute


def test_the_report(layer):
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 1), torch.nn.BatchNorm2d(6), torch.nn.BatchNorm2d(6))
    patch = patch_of()
    assert patch.report.summary() == "0 BatchNorm shapes: none yet"
    with installed(patch):
        with patch.report.naming(model):
            assert [row["reason"] for row in patch.report.as_dict()["layers"]] == ["has not run yet"] * 2
            model(layer[1]).sum().backward()
            patch.report.announce(layer[0])  # no layer of the model
            layer[0](layer[1])
        model(layer[1])
    assert patch.report.summary() == "2 BatchNorm layers: 2 gemm"
    data = patch.report.as_dict()
    assert [row["layer"] for row in data["layers"]] == ["1", "2"]
    assert {row["forward"] for row in data["layers"]} == {"torch"}
    assert [(row["forward_calls"], row["backward_calls"]) for row in data["problems"]] == [(4, 2), (1, 0)]
    assert data["problems"][0]["problem"] == "batch norm on 2x6x5x5 float32 cpu"
