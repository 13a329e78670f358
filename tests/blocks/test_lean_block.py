"""Blocks in lean memory: the bits of full memory, nothing held too long, and nothing changed unseen."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn

from yolo_rocm.blocks.block import conv_norm_act
from yolo_rocm.norm import lean, recipes

from ..tables import each_row
from .steps import by_one, by_two, layers, same, sample, served

NEW_HOOKS = hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph")


def chained(run, on: bool, amp: bool = False, shape: tuple[int, ...] = ()) -> tuple[list[torch.Tensor], Any]:
    """Return output and gradients of three blocks behind each other, and the graph's node of the last."""
    first, second, third = layers(padding=1), layers(padding=1), layers(padding=1)
    second[0] = nn.Conv2d(6, 6, 3, padding=1, bias=False)
    third[0] = nn.Conv2d(12, 6, 1, bias=False)
    x = sample(*shape).requires_grad_()
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


def test_nothing_is_held_after_backward():
    with served(), lean.installed():
        _, node = chained(by_one, on=True)
    call = node.call
    assert call.holds is NEW_HOOKS
    assert call.keeping is call.computed is None
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


@each_row(("which", "smallest"), product(["weight", "scale", "shift", "input"], [0, 2**40]), ids=str)
def test_whatever_a_block_holds_itself_is_watched(which, smallest):
    """Of a block whose result nobody computes again: only the block can find it."""
    three, x = layers(), sample().requires_grad_()
    with served(), lean.on(smallest):
        y = by_one(x, three)
    with torch.no_grad():
        {"weight": three[0].weight, "scale": three[1].weight, "shift": three[1].bias, "input": x}[which].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@each_row("which", [0, 1])
def test_a_recipe_watches_the_parameters_that_it_reads(which):
    """Of a block that backward has no other business with."""
    first, second = layers(padding=1), layers()
    second[0] = nn.Conv2d(6, 6, 1)
    with served(), lean.on(0):
        y = by_one(by_one(sample(), first), second)
    with torch.no_grad():
        first[1].get_parameter(("weight", "bias")[which]).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y.sum(), second[0].weight)
