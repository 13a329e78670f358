"""Blocks in lean memory: the bits of full memory, nothing held too long, and nothing changed unseen."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from yolo_rocm.blocks.block import conv_norm_act
from yolo_rocm.norm import kept_bytes, lean, recipes

from .steps import by_one, by_two, layers, same, sample, served

NEW_HOOKS = hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph")


def chained(run, on: bool, amp: bool = False) -> tuple[list[torch.Tensor], Any]:
    """Return output and gradients of three blocks behind each other, and the graph's node of the last."""
    first, second, third = layers(padding=1), layers(padding=1), layers(padding=1)
    second[0] = nn.Conv2d(6, 6, 3, padding=1, bias=False)
    third[0] = nn.Conv2d(12, 6, 1, bias=False)
    x = sample().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp), lean.on(0) if on else nullcontext():
        one = run(x, first)
        y = run(torch.cat((run(one, second) + one, one), 1), third)
    node = y.grad_fn
    y.float().square().sum().backward()
    parameters = [p for three in (first, second, third) for p in three.parameters()]
    return [y.detach(), x.grad, *(p.grad for p in parameters)], node


@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "autocast"])
def test_lean_memory_has_the_bits_of_full_memory(amp):
    with served(), lean.installed():
        wanted, _ = chained(by_two, on=False, amp=amp)
        for run, on in ((by_one, False), (by_one, True), (by_two, True)):
            found, _ = chained(run, on, amp)
            assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True)), (run, on)


@pytest.mark.parametrize("engine", ["gemm", "aten"])
@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "autocast"])
def test_lean_memory_has_the_bits_of_full_memory_without_parameters(amp, engine):
    found = []
    for on in (False, True):
        first, second, x = layers(padding=1), layers(), sample(2, 4, 16, 16).requires_grad_()
        second[0] = nn.Conv2d(6, 6, 1)
        for three in (first, second):
            three[1] = nn.BatchNorm2d(6, affine=False)
        cast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp)
        with served(engine), cast, lean.on(0) if on else nullcontext():
            y = conv_norm_act(x, *first)
            if y is None:
                pytest.skip("this torch gives no way to its own BatchNorm below a seam")
            y = by_one(y, second)
        y.float().square().sum().backward()
        found.append({"y": y.detach(), "x": x.grad, "first": first[0].weight.grad, "second": second[0].weight.grad})
    same(*found)


@pytest.mark.parametrize("engine", ["aten", "gemm+aten", "gemm"])
@pytest.mark.parametrize(("channels", "size"), [(1, 11), (6, 1)], ids=["one channel", "one pixel"])
def test_lean_memory_has_the_bits_of_full_memory_where_strides_say_nothing(engine, channels, size):
    """The layer behind goes by them: those of the first time, not those of the convolution's output."""
    found = []
    for on in (False, True):
        torch.manual_seed(0)
        three = nn.Sequential(nn.Conv2d(4, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.SiLU())
        behind = nn.Conv2d(channels, 6, 3, padding=1)
        x = sample(8, 4, 16 if size > 1 else 1, size, layout=torch.channels_last)
        with served(engine), lean.installed(), lean.on(0) if on else nullcontext():
            y = conv_norm_act(x, *three)
            if y is None:
                pytest.skip("this torch gives no way to its own BatchNorm below a seam")
            z = behind(y)
        z.square().sum().backward()
        found.append({"y": y.detach(), "weight": three[0].weight.grad, "behind": behind.weight.grad})
    same(*found)


@pytest.mark.parametrize("on", [False, True], ids=["full", "lean"])
@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "autocast"])
def test_a_block_that_is_called_twice_in_a_step_gets_the_gradients_of_both_calls(amp, on):
    """One weight, two conversions of it under autocast; statistics of two batches, updated in their order."""
    exact = layers(torch.float64, padding=1)
    exact[0] = nn.Conv2d(4, 4, 3, padding=1, bias=False).double()
    exact[1] = nn.BatchNorm2d(4, momentum=0.3).double()
    ours = copy.deepcopy(exact).float()
    wide, x = (sample(dtype=dtype).requires_grad_() for dtype in (torch.float64, torch.float32))
    wanted = exact(exact(wide))
    cast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp)
    with served(), lean.installed(), cast, lean.on(0) if on else nullcontext():
        y = by_one(by_one(x, ours), ours)
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    wanted.backward(grad.double())
    y.backward(grad.to(y.dtype))
    assert int(ours[1].num_batches_tracked) == 2
    pairs = [(y, wanted), (x.grad, wide.grad), *zip(ours.buffers(), exact.buffers(), strict=True)]
    pairs += [(one.grad, other.grad) for one, other in zip(ours.parameters(), exact.parameters(), strict=True)]
    for found, value in pairs:
        error = (found.double() - value.double()).norm() / value.double().norm()
        assert error <= (3e-2 if amp else 1e-5), error
    assert ours[0].weight.grad.dtype == torch.float32


def test_nothing_is_held_after_backward():
    with served(), lean.installed():
        _, node = chained(by_one, on=True)
    call = node.call
    assert call.holds is NEW_HOOKS
    assert call.keeping is call.again is None
    assert not call.holds or call._x is call._y is None
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        _ = node.saved_tensors


def test_a_block_without_gradients_asks_for_nothing_in_lean_memory():
    """Frozen layers on a detached activation: what is computed again would wait for them."""
    first, frozen = layers(padding=1), layers()
    frozen[0] = nn.Conv2d(6, 6, 1)
    with served(), lean.on(0):
        y = by_one(sample().requires_grad_(), first)
        assert not by_one(y.detach(), frozen.requires_grad_(False)).requires_grad
        recipe = recipes.active_recipes().find(y)
        assert recipe._uses == 0
        by_one(y, frozen)
        assert recipe._uses == 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_gradients_are_off_nothing_is_asked_for(mode):
    first, second = layers(padding=1), layers()
    second[0] = nn.Conv2d(6, 6, 1)
    with served(), lean.on(0):
        y = by_one(sample().requires_grad_(), first)
        with mode():
            by_one(y, second)
            by_one(sample(), first)
        assert recipes.active_recipes().find(y)._uses == 0


def test_a_frozen_convolution_in_lean_memory():
    found = []
    for on in (False, True):
        first, second = layers(padding=1), layers()
        second[0] = nn.Conv2d(6, 6, 1).requires_grad_(False)
        first.requires_grad_(False)
        first[1].requires_grad_(True)
        torch.nn.init.constant_(second[0].weight, 0.1)
        x = sample()
        with served(), lean.on(0) if on else nullcontext():
            y = by_one(by_one(x, first), second)
        with torch.no_grad():
            x.zero_()
        y.square().sum().backward()
        found.append([p.grad for p in (*first[1].parameters(), *second[1].parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.skipif(not NEW_HOOKS, reason="this torch does not say whether a graph is kept: hooks do all of it")
def test_lean_memory_needs_no_hooks_for_blocks_and_puts_them_back(monkeypatch):
    unpacked = []
    monkeypatch.setattr(recipes, "unpack", lambda kept: unpacked.append(kept) or kept.value())
    three = layers(padding=1)
    with served(), lean.on(0):
        y = by_one(sample().requires_grad_(), three)
        top = torch._C._autograd._top_saved_tensors_default_hooks(True)
        assert top[0] is recipes.pack
        three[0] = nn.Conv2d(4, 5, 3)  # which does not fit its BatchNorm
        assert conv_norm_act(sample(), *three) is None
    y.sum().backward()
    assert unpacked == []


@pytest.mark.skipif(not NEW_HOOKS, reason="this torch does not say whether a graph is kept: hooks do all of it")
def test_a_graph_may_be_used_twice_and_gradients_of_gradients_are_refused_in_lean_memory():
    x, three = sample().requires_grad_(), layers(padding=1)
    with served(), lean.on(0):
        y = by_one(by_one(x, three) * 1, nn.Sequential(nn.Conv2d(6, 6, 1), *three[1:]))
    (first,) = torch.autograd.grad(y.square().sum(), x, retain_graph=True)
    (second,) = torch.autograd.grad(y.square().sum(), x, retain_graph=True)
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match=r"step\.memory: full"):
        torch.autograd.grad(y.square().sum(), x, create_graph=True)


def test_a_parameter_changed_before_backward_is_found_in_lean_memory():
    first, second = layers(padding=1), layers()
    second[0] = nn.Conv2d(6, 6, 1)
    with served(), lean.on(0):
        y = by_one(by_one(sample(), first), second)
    with torch.no_grad():
        first[1].bias.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("which", ["weight", "scale", "shift", "input"])
@pytest.mark.parametrize("smallest", [0, 2**40], ids=["recipes", "all is small"])
def test_whatever_a_block_holds_itself_is_watched(which, smallest):
    """Of a block whose result nobody computes again: only the block can find it."""
    three, x = layers(), sample().requires_grad_()
    with served(), lean.on(smallest):
        y = by_one(x, three)
    with torch.no_grad():
        {"weight": three[0].weight, "scale": three[1].weight, "shift": three[1].bias, "input": x}[which].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_hooks_of_others_get_the_tensors():
    packed = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t)
    with served(), lean.on(0), hooks:
        y = by_one(sample().requires_grad_(), layers())
    assert y.shape in [tensor.shape for tensor in packed]


def test_the_same_bytes_are_kept_as_by_two_functions():
    found = []
    for run in (by_one, by_two):
        three, four, x = layers(padding=1), layers(padding=1), sample(2, 4, 16, 16).requires_grad_()
        four[0] = nn.Conv2d(6, 6, 3, bias=False)
        for on in (False, True):
            without = [x, *three.parameters(), *three.buffers(), *four.parameters(), *four.buffers()]
            with served(), lean.on(0) if on else nullcontext(), kept_bytes.counted(without) as kept:
                y = run(run(x, three), four)
            sizes = sorted(size for size, _ in kept.storages.values() if size > 100)
            found.append(sizes)
            del y
    assert found[0] == found[2]
    assert found[1] == found[3]
    assert sum(found[1]) < sum(found[0])
