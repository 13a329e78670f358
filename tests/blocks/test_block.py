"""A block as one function: the bits of convolution, BatchNorm and activation one after the other, gradients too."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from yolo_rocm.blocks import block as module_of_block
from yolo_rocm.blocks.block import conv_norm_act
from yolo_rocm.conv import seam as convolutions
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import Planner
from yolo_rocm.conv.step_timer import StepTimer
from yolo_rocm.norm import seam as normalisations
from yolo_rocm.norm.fused import norm_act
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner

from ..tables import each_row
from .steps import by_one, by_two, layers, same, sample, served, stepped

CONVOLUTIONS = {
    "3x3": {"kernel_size": 3, "padding": 1},
    "1x1": {"kernel_size": 1},
    "groups": {"kernel_size": 3, "padding": 2, "groups": 2, "dilation": 2},
    "stride and bias": {"kernel_size": 3, "padding": (1, 0), "stride": 2, "bias": True},
}


@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "autocast"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_step_has_the_bits_of_the_two_functions(name, layout, amp):
    x, three = sample(layout=layout), layers(**CONVOLUTIONS[name])
    with served():
        same(stepped(by_one, x, three, amp), stepped(by_two, x, three, amp))


def test_gradients_that_have_gradients_are_computed_without_autocast():
    """As torch computes backward passes, whoever asks for them where; a changed weight gives none."""
    three, x = layers(), sample().requires_grad_()

    def gradient(run):
        y = run(x, three).square().sum()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.autograd.grad(y, x, create_graph=True)[0].detach()

    wanted = gradient(lambda x, three: three(x))
    with served():
        torch.testing.assert_close(gradient(by_one), wanted, rtol=1e-4, atol=1e-5)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = by_one(x, three).float().square().sum()
        (grad,) = torch.autograd.grad(loss, three[0].weight, create_graph=True, retain_graph=True)
        assert grad.dtype == torch.float32
        assert torch.autograd.grad(grad.square().sum(), x, retain_graph=True)[0].any()
        with torch.no_grad():
            three[0].weight.add_(1)
        with pytest.raises(RuntimeError, match=r"modified by an inplace operation.* Gradients of gradients"):
            torch.autograd.grad(loss, x, create_graph=True, retain_graph=True)
        assert torch.autograd.grad(loss, x)[0].isfinite().all()  # of the copy, as torch's


def test_a_pass_in_eval_mode_may_go_backward_after_one_in_training():
    """It has kept the statistics that the other one has updated, and torch's kernels do not count that."""
    x = sample()

    def gradient(run):
        three = layers()
        with torch.no_grad():
            run(x, three)
        before = three.eval()(x)
        (before - run(x, three.train())).square().sum().backward()
        return three[0].weight.grad

    wanted = gradient(lambda x, three: three(x))
    with served():
        torch.testing.assert_close(gradient(by_one), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(
    not hasattr(torch._C._functorch, "is_legacy_batchedtensor"), reason="torch < 2.0 does not tell many from one"
)
@pytest.mark.parametrize("by", ["block", "two functions"])
def test_gradients_for_many_outputs_at_once(by):
    three, x = layers(), sample().requires_grad_()
    run = {"torch": lambda x, three: three(x), "block": by_one, "two functions": by_two}

    def jacobian(name):
        y = run[name](x, three).mean((2, 3))[0]
        return torch.autograd.grad(y, (x, three[1].weight), torch.eye(6), is_grads_batched=True)

    wanted = jacobian("torch")
    with served():
        for found, each in zip(jacobian(by), wanted, strict=True):
            torch.testing.assert_close(found, each, rtol=1e-4, atol=1e-5)


def test_a_frozen_convolution_keeps_nothing_and_is_not_watched():
    three, x = layers(padding=1), sample()
    three[0].requires_grad_(False)
    wanted = stepped(lambda x, three: three(x), x, three)
    saved = []
    with served(), torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.shape) or t, lambda t: t):
        y = by_one(x, three)
    assert sorted(saved, key=len) == [(6,)] * 4 + [y.shape]  # parameters and statistics, and the convolution's output
    with torch.no_grad():
        x.zero_()
        three[0].weight.zero_()
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(2)), retain_graph=True)
    for name in ("1.weight", "1.bias"):
        torch.testing.assert_close(dict(three.named_parameters())[name].grad, wanted[name], rtol=1e-4, atol=1e-4)
    first = torch.autograd.grad(y.square().sum(), three[1].weight, create_graph=True)
    assert torch.autograd.grad(first[0].sum(), three[1].weight)[0].any()


def test_a_repeated_call_plans_nothing_and_a_new_plan_counts(monkeypatch):
    asked = []
    find = module_of_block.find
    monkeypatch.setattr(module_of_block, "find", lambda *given: asked.append(given) or find(*given))
    three = layers()
    with served() as (patch, norms):
        for _ in range(3):
            by_one(sample(), three)
        assert len(asked) == 1
        patch.planner.generation += 1
        by_one(sample(), three)
        assert len(asked) == 2
        norms.planner.generation += 1
        by_one(sample(), three)
        assert len(asked) == 3
        three[0].stride = (2, 2)
        assert by_one(sample(), three).shape[2] == 3
        with convolutions.installed(patch.renewed()):
            by_one(sample(), three)
        assert len(asked) == 5


def test_calls_are_counted_and_belong_to_layers():
    three = layers()
    with served() as (patch, norms), ExitStack() as stack:
        for report in (patch.report, norms.report):
            stack.enter_context(report.naming(three))
        by_one(sample().requires_grad_(), three).sum().backward()
        for report, name in ((patch.report, "0"), (norms.report, "1")):
            (entry,) = report.served.values()
            assert (entry.forward_calls, entry.backward_calls) == (1, 1)
            assert [row["layer"] for row in report.as_dict()["layers"] if row["engine"]] == [name]
        by_one(sample(), three)
        assert entry.forward_calls == 2


def test_the_convolution_of_a_timed_step_is_left_to_the_seam():
    three = layers()
    with served() as (patch, _):
        patch.report.timer = StepTimer(1, torch.device("cpu"))
        assert conv_norm_act(sample(), *three) is None
        patch.report.timer = None
        by_one(sample(), three)


def test_what_is_unusual_is_left_to_torch():
    def refused(x=None, conv=None, norm=None):
        three = layers()
        with served():
            return conv_norm_act(sample() if x is None else x, conv or three[0], norm or three[1], three[2]) is None

    assert not refused()
    assert refused(conv=nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"))
    assert refused(conv=nn.Conv2d(4, 6, 3, padding="same"))
    assert refused(conv=type("Mine", (nn.Conv2d,), {})(4, 6, 3))
    assert refused(conv=nn.ConvTranspose2d(4, 6, 3))
    assert refused(conv=nn.Conv2d(4, 6, 3).double())
    assert refused(conv=nn.Conv2d(5, 6, 3))
    assert refused(sample(4, 7, 8))
    assert refused(sample(1, 4, 3, 3))  # one value in a channel
    assert refused(torch._neg_view(sample()))
    for name, value in (("stride", [2, 2]), ("stride", 2), ("padding", [1, 1]), ("padding", 1), ("dilation", 1)):
        conv = nn.Conv2d(4, 6, 3)
        setattr(conv, name, value)  # which torch takes
        assert refused(conv=conv), (name, value)
    assert refused(sample(dtype=torch.bfloat16))
    assert refused(norm=nn.BatchNorm2d(7))
    hooked = nn.Conv2d(4, 6, 3)
    hooked.register_forward_hook(lambda *_: None)
    assert refused(conv=hooked)
    pruned = nn.Conv2d(4, 6, 3)
    prune.l1_unstructured(pruned, "weight", 0.5)
    assert refused(conv=pruned)


ODD = {"of another size": lambda tensor: tensor[:1], "elsewhere": lambda tensor: tensor.to("meta")}


@each_row(("name", "odd"), product(["0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"], ODD), ids=str)
def test_an_odd_tensor_is_left_to_torch_also_after_a_good_call(name, odd):
    """As a tool leaves it that takes channels away, or all parameters but one."""
    three = layers(bias=True)
    module, name = three[int(name[0])], name[2:]
    found = ODD[odd](getattr(module, name).data)
    with served():
        assert conv_norm_act(sample(), *three) is not None
        setattr(module, name, nn.Parameter(found) if name in module._parameters else found)
        assert conv_norm_act(sample(), *three) is None


def test_a_norm_with_a_weight_alone_is_left_to_torch():
    for without in ("weight", "bias"):
        conv, norm, act = layers()
        setattr(norm, without, None)
        with served():
            assert conv_norm_act(sample(), conv, norm, act) is None
            assert norm_act(conv(sample()), norm, act) is None


def test_forward_differentiation_is_torchs_own():
    """Which knows it of its own functions alone; a function of ours would raise."""
    from torch.autograd import forward_ad

    three = layers()
    with served(), forward_ad.dual_level():
        dual = forward_ad.make_dual(sample(), torch.ones_like(sample()))
        assert conv_norm_act(dual, *three) is None
        assert norm_act(dual, nn.BatchNorm2d(4), nn.SiLU()) is None
    with served():
        by_one(sample(), three)


def test_both_patches_must_serve_the_device():
    with convolutions.installed(Patch(("cpu",), Planner("gemm", remember=False))):
        assert conv_norm_act(sample(), *layers()) is None
    with normalisations.installed(NormPatch(("cpu",), NormPlanner("gemm", remember=False))):
        assert conv_norm_act(sample(), *layers()) is None


def test_a_profile_names_the_parts():
    with served(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        by_one(sample().requires_grad_(), layers()).sum().backward()
    names = [event.name for event in profiler.events()]
    assert names.count("yolo_rocm::convolution") == names.count("yolo_rocm::normalisation") == 2
