"""A block as one function: the bits of convolution, BatchNorm and activation one after the other, gradients too."""

from __future__ import annotations

import copy
from contextlib import ExitStack, nullcontext
from functools import partial

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
    "stride": {"kernel_size": 3, "padding": 1, "stride": 2},
    "groups": {"kernel_size": 3, "padding": 1, "groups": 2},
    "dilation": {"kernel_size": 3, "padding": 2, "dilation": 2},
    "bias": {"kernel_size": 3, "padding": (1, 0), "bias": True},
}


@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "autocast"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_step_has_the_bits_of_the_two_functions(name, layout, amp):
    x, three = sample(layout=layout), layers(**CONVOLUTIONS[name])
    with served():
        same(stepped(by_one, x, three, amp), stepped(by_two, x, three, amp))


@pytest.mark.parametrize("bias", [False, True])
def test_gradients_have_the_data_type_of_what_was_converted_for_everybody(bias):
    """Autograd converts them, before anybody sees them."""
    three, seen = layers(padding=1, bias=bias), []
    own = list(three[0].parameters())
    with served(), torch.autocast("cpu", dtype=torch.bfloat16):
        asked = torch.autograd.grad(by_one(sample(), three).float().sum(), own)
        for parameter in own:
            parameter.register_hook(lambda grad: seen.append(grad.dtype))
        by_one(sample(), three).float().sum().backward()
    assert {grad.dtype for grad in asked} == set(seen) == {torch.float32}
    assert len(seen) == len(own) == 1 + bias
    for parameter, grad in zip(own, asked, strict=True):
        assert torch.equal(parameter.grad, grad)
        assert torch.equal(grad, grad.bfloat16().float())  # computed in the other one


@pytest.mark.parametrize("engine", ["aten", "vendor"])
@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "autocast"])
def test_the_same_with_torchs_own_kernels(engine, amp):
    three = layers(padding=1)
    with served(engine):
        if conv_norm_act(sample(), *copy.deepcopy(three)) is None:
            pytest.skip("this torch gives no way to its own BatchNorm below a seam")
        same(stepped(by_one, sample(), three, amp), stepped(by_two, sample(), three, amp))


@pytest.mark.parametrize("act", [nn.SiLU(inplace=True), nn.ReLU(), nn.LeakyReLU(0.1), nn.Identity()], ids=str)
def test_a_step_is_that_of_torch(act):
    three = layers(torch.float64, act, padding=1)
    x = sample(dtype=torch.float64)
    wanted = stepped(lambda x, three: three(x), x, three)
    with served():
        found = stepped(by_one, x, three)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9, msg=name)


def test_half_input_and_input_of_autocasts_own_type():
    three = layers(padding=1)
    with served():
        x = sample(dtype=torch.bfloat16)
        same(stepped(by_one, x, three, amp=True), stepped(by_two, x, three, amp=True))


@each_row(
    "frozen", [("x",), ("0.weight",), ("x", "0.weight", "0.bias"), ("1.weight", "1.bias"), ("1.weight",)], ids=str
)
def test_only_wanted_gradients_are_computed(frozen):
    three = layers(padding=1, bias=True)
    with served():
        whole = stepped(by_two, sample(), three)
        x = sample().requires_grad_("x" not in frozen)
        for name, parameter in three.named_parameters():
            parameter.requires_grad_(name not in frozen)
        y = by_one(x, three)
        y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(2)))
    for name, tensor in (("x", x), *three.named_parameters()):
        assert (tensor.grad is None) if name in frozen else torch.equal(tensor.grad, whole[name]), name


def test_without_gradients_the_statistics_are_still_updated():
    three = layers()
    with served(), torch.no_grad():
        assert not by_one(sample(), three).requires_grad
    assert int(three[1].num_batches_tracked) == 1


@pytest.mark.parametrize("amp", [False, True], ids=["fp64", "autocast"])
def test_gradients_have_gradients(amp):
    dtype = torch.float32 if amp else torch.float64
    three = layers(dtype, kernel_size=2, bias=True)
    names = dict(three.named_parameters())
    inputs = [sample(2, 4, 3, 2, dtype=dtype), *(p.detach().clone() for p in names.values())]

    def function(x, *parameters):
        clone = copy.deepcopy(three)
        for name, parameter in zip(names, parameters, strict=True):
            clone[int(name[0])]._parameters[name[2:]] = parameter
        return by_one(x, clone)

    inputs = [tensor.requires_grad_() for tensor in inputs]
    with served():
        if not amp:
            assert torch.autograd.gradcheck(function, inputs)
            assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)
            return
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = function(*inputs)
        first = torch.autograd.grad(y.float().square().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(each.square().sum() for each in first), inputs)
    assert all(bool(each.isfinite().all()) and each.any() for each in (*first, second[0], second[1]))


def test_gradients_that_have_gradients_are_computed_without_autocast():
    """As torch computes backward passes, whoever asks for them where."""
    three, x = layers(), sample().requires_grad_()

    def gradient(run):
        y = run(x, three).square().sum()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.autograd.grad(y, x, create_graph=True)[0].detach()

    wanted = gradient(lambda x, three: three(x))
    with served():
        torch.testing.assert_close(gradient(by_one), wanted, rtol=1e-4, atol=1e-5)


def test_a_weight_that_was_converted_and_changed_gives_no_gradients_that_have_gradients():
    three, x = layers(), sample().requires_grad_()
    with served():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = by_one(x, three).float().square().sum()
        with torch.no_grad():
            three[0].weight.add_(1)
        with pytest.raises(RuntimeError, match=r"modified by an inplace operation.* Gradients of gradients"):
            torch.autograd.grad(loss, x, create_graph=True, retain_graph=True)
        assert torch.autograd.grad(loss, x)[0].isfinite().all()  # of the copy, as torch's


@pytest.mark.parametrize("engine", ["gemm", "aten"])
def test_a_pass_in_eval_mode_may_go_backward_after_one_in_training(engine):
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
    with served(engine):
        if conv_norm_act(sample(), *layers()) is None:
            pytest.skip("this torch gives no way to its own BatchNorm below a seam")
        torch.testing.assert_close(gradient(by_one), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("by", ["block", "two functions"])
def test_the_first_gradients_are_the_same_where_they_have_gradients(by):
    """Of a block that is called twice: how the second input depends on the parameters is counted once."""
    three = layers(torch.float64, kernel_size=1)
    three[0] = nn.Conv2d(6, 6, 1, dtype=torch.float64)
    x, run = sample(2, 6, 3, 3, dtype=torch.float64), {"block": by_one, "two functions": by_two}[by]

    def gradients(call, create):
        loss = call(call(x, three), three).square().sum()
        return torch.autograd.grad(loss, list(three.parameters()), create_graph=create)

    wanted = gradients(lambda x, three: three(x), False)
    with served():
        for create in (False, True):
            for name, found, grad in zip("abcd", gradients(run, create), wanted, strict=True):
                torch.testing.assert_close(found.detach(), grad, rtol=1e-9, atol=1e-9, msg=f"{name} {create}")


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


def test_a_weight_changed_before_backward_is_found_as_by_torch():
    three = layers()
    with served():
        y = by_one(sample().requires_grad_(), three)
    with torch.no_grad():
        three[0].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(reentrant):
    from torch.utils.checkpoint import checkpoint

    found = []
    for run in (by_one, by_two):
        three, x = layers(padding=1), sample().requires_grad_()
        with served():
            checkpoint(lambda x, run=run, three=three: run(x * 1, three), x, use_reentrant=reentrant).sum().backward()
        found.append({"x": x.grad, "weight": three[0].weight.grad, **dict(three.named_buffers())})
    same(*found)


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
@pytest.mark.parametrize("run", [by_one, by_two], ids=["block", "two functions"])
def test_a_checkpoint_that_computes_other_values_the_second_time_has_their_gradients(run, frozen):
    """As dropout without the generator's state, and spectral norms; torch takes all of them from the second pass."""
    from torch.utils.checkpoint import checkpoint

    three, x, factors = layers(torch.float64, padding=1), sample(dtype=torch.float64), iter((1.0, 3.0))
    if frozen:
        three[0].requires_grad_(False)
    inputs = []

    def changing(x):
        inputs.append(x + torch.linspace(0, next(factors), x.numel(), dtype=x.dtype).view(x.shape).sin())
        return run(inputs[-1], three)

    parameters = [p for p in three.parameters() if p.requires_grad]
    with served():
        y = checkpoint(changing, x, use_reentrant=False)
        grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=y.dtype)
        found = torch.autograd.grad(y, parameters, grad)
    wanted = torch.autograd.grad(three(inputs[1]), parameters, grad)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("run", [by_one, by_two], ids=["block", "two functions"])
def test_a_gradient_penalty_through_a_checkpoint_updates_statistics_as_often_as_with_torch(run):
    """Each time that torch asks for what was saved, the checkpoint computes once more."""
    from torch.utils.checkpoint import checkpoint

    found = []
    for ours in (False, True):
        three, x = layers(torch.float64, padding=1), sample(dtype=torch.float64).requires_grad_()
        with served() if ours else nullcontext():
            call = partial(run, three=three) if ours else three
            y = checkpoint(call, x, use_reentrant=False)
            (grad,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
            grad.square().sum().backward()
        found.append({"weight": three[0].weight.grad, **dict(three.named_buffers())})
    assert int(found[1]["1.num_batches_tracked"]) > 1
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, msg=name)


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


@each_row("name", ["conv.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"])
def test_a_tensor_of_another_size_is_left_to_torch_also_after_a_good_call(name):
    """As a tool leaves it that takes channels away and has forgotten it."""
    conv, norm, act = layers(bias=True)
    module = {"conv": conv, "norm": norm}[name.partition(".")[0]]
    tensor = getattr(module, name.partition(".")[2])
    with served():
        assert conv_norm_act(sample(), conv, norm, act) is not None
        tensor.data = tensor.data[:1]
        assert conv_norm_act(sample(), conv, norm, act) is None
        with pytest.raises(RuntimeError, match=r"bias to be 1-dimensional|should contain 6 elements not 1"):
            act(norm(conv(sample())))


@pytest.mark.parametrize("name", ["conv.weight", "conv.bias", "norm.weight", "norm.running_var"])
def test_a_tensor_of_another_device_is_left_to_torch_also_after_a_good_call(name):
    conv, norm, act = layers(bias=True)
    module, name = {"conv": conv, "norm": norm}[name.partition(".")[0]], name.partition(".")[2]
    elsewhere = getattr(module, name).data.to("meta")
    with served():
        assert conv_norm_act(sample(), conv, norm, act) is not None
        setattr(module, name, nn.Parameter(elsewhere) if name in module._parameters else elsewhere)
        assert conv_norm_act(sample(), conv, norm, act) is None


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
    assert conv_norm_act(sample(), *layers()) is None
    with convolutions.installed(Patch(("cpu",), Planner("gemm", remember=False))):
        assert conv_norm_act(sample(), *layers()) is None
    with normalisations.installed(NormPatch(("cpu",), NormPlanner("gemm", remember=False))):
        assert conv_norm_act(sample(), *layers()) is None
    with served(devices=("cuda",)):
        assert conv_norm_act(sample(), *layers()) is None


def test_a_profile_names_the_parts():
    with served(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        by_one(sample().requires_grad_(), layers()).sum().backward()
    names = [event.name for event in profiler.events()]
    assert names.count("yolo_rocm::convolution") == names.count("yolo_rocm::normalisation") == 2
