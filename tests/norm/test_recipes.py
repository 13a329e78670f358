"""Saved tensors as recipes: right gradients, nothing kept that need not be, and no mistaken identity."""

from __future__ import annotations

import random
import weakref
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from yolo_rocm.norm import kept_bytes, lean, recipes
from yolo_rocm.norm.keeping import MOST_STEPS, Activation, Derived, Kept, View

from ..tables import each_row
from .lean_layers import NETWORKS, Layers, Network, after, gradients, kept_of, layers_of, same
from .stand_in import norm_act, offer

pytestmark = pytest.mark.usefixtures("lean_installed")


@each_row("name", NETWORKS)
def test_gradients_are_the_same_and_what_was_computed_of_activations_is_not_kept(name: str) -> None:
    same(NETWORKS[name])
    consumer = kept_of(NETWORKS[name])[-2]  # the last convolution keeps its input and its weight
    assert isinstance(consumer, Activation | View | Derived)


def test_an_activation_is_freed_in_the_forward_pass() -> None:
    layers, x = layers_of()
    with lean.on(0):
        y = layers.act(0, x)
        freed = weakref.ref(y)
        parts = [*y.chunk(2, 1), layers.act(1, x)]
        joined = torch.cat(parts, 1)
        freed_too = weakref.ref(joined)
        out = layers.wide(joined)
        del y, parts, joined
        assert freed() is None
        assert freed_too() is None
    out.sum().backward()


def test_small_tensors_are_kept_and_large_ones_made_of_them_are_not() -> None:
    layers, x = layers_of()
    size = layers.convs[0](x).numel()
    with lean.on(size + 1), kept_bytes.counted() as kept:
        a, b = layers.act(0, x), layers.act(1, x)
        assert not recipes.wanted(a)
        after(layers, a)
        assert isinstance(kept._kept[-2], Kept)
        layers.wide(torch.cat([a, b], 1))
    consumer = kept._kept[-2]
    assert isinstance(consumer, Derived)
    assert [type(part) for part in consumer._parts] == [Kept, Kept]
    assert not [part for part in consumer._parts if part._tensor.grad_fn is not None]
    with lean.on(size), kept_bytes.counted() as kept:
        y = layers.act(0, x)
        assert recipes.wanted(y)
        after(layers, y)
        assert isinstance(kept._kept[-2], Activation)
        layers.narrow(y.chunk(2, 1)[1])  # small, but all of the activation would be kept for it
        assert isinstance(kept._kept[-2], View)


def _changed_unseen(layers: Layers, x: torch.Tensor) -> torch.Tensor:
    y = layers.act(0, x)
    with torch.no_grad():
        y.mul_(2)  # not in the graph
    return layers.wide(torch.cat([y, layers.act(1, x)], 1)) + after(layers, y)


def _sum_changed_unseen(layers: Layers, x: torch.Tensor) -> torch.Tensor:
    y = layers.act(0, x) + layers.act(1, x)
    with torch.no_grad():
        y[:, 1:].mul_(2)
    return layers.wide(torch.cat([y, layers.act(2, x)], 1)) + layers.narrow(y.chunk(2, 1)[1])


def _changed_in_the_graph(layers: Layers, x: torch.Tensor) -> torch.Tensor:
    y = layers.act(0, x)
    y[:, 1] *= 2
    return after(layers, y) + layers.narrow(y.chunk(2, 1)[0])


@pytest.mark.parametrize("network", [_changed_unseen, _sum_changed_unseen, _changed_in_the_graph])
def test_an_activation_that_was_changed_in_place_is_kept_as_it_is(network: Network) -> None:
    same(network)
    assert any(isinstance(keeping, Kept) and not keeping._tensor.requires_grad for keeping in kept_of(network))


@pytest.mark.parametrize("what", ["convolution", "parameter", "output", "input"])
def test_other_changes_in_place_are_refused_as_torch_does(what: str) -> None:
    layers, x = layers_of()

    def forward() -> torch.Tensor:
        z = layers.convs[0](x)
        y = norm_act(z, layers.norms[0])
        out = after(layers, y.exp() if what == "output" else y)
        grown = z.exp()
        changed = {"convolution": z, "parameter": layers.norms[0].weight, "output": grown, "input": z}[what]
        with torch.no_grad():
            changed.add_(1)
        return out.sum() + grown.sum()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        forward().backward()
    with lean.on(0):
        loss = forward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_small_buffer_may_change_after_it_was_added() -> None:
    layers, x = layers_of()
    found = []
    for on in (False, True):
        offset = torch.full((1, 4, 1, 1), 0.5)
        layers.zero_grad()
        with lean.on(600) if on else nullcontext():  # activations are larger, the buffer is not
            out = layers.convs[1](layers.act(0, x) + offset)
        offset.mul_(0.9)
        (out * out).sum().backward()
        found.append([p.grad.clone() for p in layers.parameters() if p.grad is not None])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_new_tensor_is_not_taken_for_the_old_one_of_the_same_id() -> None:
    x = torch.rand(3, requires_grad=True)
    with lean.on(0):
        entries = recipes._thread.known._entries
        y, other = x * 2, x * 3
        offer(y, lambda: x.detach() * 2)
        (entry,) = entries.values()
        del y
        assert not entries  # forgotten at once
        entries[id(other)] = entry  # as if a callback had not been called, and the id been used again
        assert isinstance(recipes.pack(other), Kept)


def test_a_new_tensor_is_not_taken_for_the_old_one_in_the_same_memory() -> None:
    memory = bytearray(torch.arange(6.0).numpy().tobytes())

    def view() -> torch.Tensor:
        return torch.frombuffer(memory, dtype=torch.float32)

    with lean.on(0):
        y = view()
        offer(y, lambda: torch.arange(6.0))
        assert isinstance(recipes.pack(view()), Activation)  # as `detach()`
        del y
        assert isinstance(recipes.pack(view()), Kept)


def test_a_detached_activation_is_known_while_the_activation_lives() -> None:
    layers, x = layers_of()
    with lean.on(0), kept_bytes.counted() as kept:
        y = layers.act(0, x)
        after(layers, y.detach())
        assert isinstance(kept._kept[-2], Activation)
        after(layers, y.detach()[:1])  # of another shape at the same address
        assert isinstance(kept._kept[-2], Kept)
        alias = y.detach()
        with torch.no_grad():
            y.add_(1)
        after(layers, alias)
        assert isinstance(kept._kept[-2], Kept)
        other = layers.act(0, x)
        alias = other.data  # with a counter of its own
        after(layers, alias.add_(1))
        assert isinstance(kept._kept[-2], Kept)
    same(lambda n, x: (lambda y: after(n, y.detach()) + n.convs[2](y))(n.act(0, x)))


def test_long_chains_of_sums_are_kept_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    depth = 3 * MOST_STEPS

    def chain(layers: Layers, x: torch.Tensor) -> torch.Tensor:
        y = layers.act(0, x)
        for index in range(1, depth):
            y = y + layers.act(index, y)
        return y * 1

    same(chain, depth)
    kept = kept_of(chain, depth)
    assert max(keeping.steps for keeping in kept) == MOST_STEPS
    made = []
    real = Activation._make
    monkeypatch.setattr(Activation, "_make", lambda self: made.append(self) or real(self))
    gradients(chain, True, depth)
    assert len(made) <= depth  # each of them once, however many sums it is in


def test_layout_and_shape_are_those_of_the_first_time() -> None:
    x = torch.rand(2, 4, 3, 3, requires_grad=True)
    with lean.on(0):
        y = (x * 2).contiguous(memory_format=torch.channels_last)
        offer(y, lambda: (x * 2).detach(), (x,))  # contiguous
        again = recipes.unpack(recipes.pack(y[:, 1:]))
    assert again.stride() == y[:, 1:].stride()
    assert torch.equal(again, y[:, 1:])


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.deep) for n in range(6, 25))])
def test_random_networks(seed: int) -> None:
    """Also where some of it is small."""

    def network(layers: Layers, x: torch.Tensor) -> torch.Tensor:
        return _random_network(random.Random(seed), layers, x)

    same(network, count=12)
    found, expected = gradients(network, True, 12, 125 * (seed + 2)), gradients(network, False, 12)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def _random_network(choice: random.Random, layers: Layers, x: torch.Tensor) -> torch.Tensor:
    """Join layers at random: all that is a recipe, and much that is none, of tensors with four channels of one size."""
    found = [x * 1]
    for index in range(12):
        for _ in range(choice.randrange(1, 4)):
            a, b = choice.choice(found), choice.choice(found)
            found.append(_joined(choice.randrange(9), layers, a, b))
        found.append(layers.act(index, choice.choice(found)))
        if choice.random() < 0.2:
            with torch.no_grad():
                changed = found[-1] + found[-1]  # nobody has kept it yet
                found[-1].copy_(changed)
    return sum(found[1:], start=found[0])  # type: ignore[return-value]


def _joined(kind: int, layers: Layers, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    halves = [*a.chunk(2, 1), *b.split((2, 2), 1)]
    return (
        lambda: a + b,
        lambda: layers.wide(torch.cat([a, b], 1)),
        lambda: torch.cat([halves[0], halves[3]], 1),
        lambda: nn.functional.max_pool2d(nn.functional.interpolate(a, scale_factor=2.0), 2),
        lambda: nn.functional.max_pool2d(a, 3, 1, 1),
        lambda: layers.narrow(halves[1]),
        lambda: layers.narrow(halves[0] + halves[2]),
        lambda: a.detach().sigmoid() * b,
        lambda: layers.wide(torch.cat([*halves[1:], b[:, :2]], dim=1)),
    )[kind]()
