"""Saved tensors as recipes: right gradients, nothing kept that need not be, and no mistaken identity."""

from __future__ import annotations

import gc
import random
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from yolo_rocm.norm import kept_bytes, lean, recipes
from yolo_rocm.norm.keeping import MOST_STEPS, Activation, Derived, Kept, View

from .stand_in import activated, norm_act

Network = Callable[["Layers", torch.Tensor], torch.Tensor]


class Layers(nn.Module):
    """Convolutions with BatchNorm and SiLU, to be joined in any way."""

    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(count))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(count))
        self.narrow = nn.Conv2d(2, 4, 1)
        self.wide = nn.Conv2d(8, 4, 1)

    def act(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """Return an activation, and offer it."""
        return norm_act(self.convs[index](x), self.norms[index])


@pytest.fixture(autouse=True)
def _additions() -> Iterator[None]:
    with lean.installed():
        yield


def _layers(count: int = 4) -> tuple[Layers, torch.Tensor]:
    torch.manual_seed(0)
    return Layers(count), torch.rand(2, 4, 6, 6)


def _gradients(network: Network, on: bool, count: int = 4, smallest: int = 0) -> list[torch.Tensor]:
    layers, x = _layers(count)
    x.requires_grad_()
    if on:
        with lean.on(smallest):
            y = network(layers, x)
    else:
        y = network(layers, x)
    (y * y).sum().backward()
    return [x.grad, *(p.grad for p in layers.parameters() if p.grad is not None)]


def _same(network: Network, count: int = 4) -> None:
    for one, other in zip(_gradients(network, True, count), _gradients(network, False, count), strict=True):
        assert torch.equal(one, other)


def _kept(network: Network, count: int = 4) -> list[object]:
    """Return how the non-leaf tensors are kept."""
    layers, x = _layers(count)
    with lean.on(0), kept_bytes.counted() as kept:
        network(layers, x)
    return [keeping for keeping in kept._kept if not (isinstance(keeping, Kept) and keeping._tensor is x)]


def _after(layers: Layers, y: torch.Tensor) -> torch.Tensor:
    return layers.convs[1](y)


NETWORKS: dict[str, Network] = {
    "activation": lambda n, x: _after(n, n.act(0, x)),
    "chunk": lambda n, x: n.narrow(n.act(0, x).chunk(2, 1)[1]),
    "split": lambda n, x: n.narrow(n.act(0, x).split((2, 2), 1)[0]),
    "slice": lambda n, x: _after(n, n.act(0, x)[:, :, 1::2, 2:]),
    "view of a view": lambda n, x: n.narrow(n.act(0, x)[1:].chunk(2, 1)[1].transpose(2, 3)),
    "cat": lambda n, x: n.wide(torch.cat([n.act(0, x), n.act(1, x)], 1)),
    "cat of halves": lambda n, x: n.wide(torch.cat((*n.act(0, x).chunk(2, 1), n.act(1, x)), dim=1)),
    "cat along the height": lambda n, x: _after(n, torch.cat([n.act(0, x), n.act(2, x)], dim=2)),
    "sum": lambda n, x: _after(n, n.act(0, x) + n.act(2, x)),
    "sum with a kept tensor": lambda n, x: _residual(n, x),
    "half of a sum": lambda n, x: n.narrow((n.act(0, x) + n.act(2, x)).chunk(2, 1)[1]),
    "up-sampling": lambda n, x: _after(n, nn.Upsample(scale_factor=2, mode="nearest")(n.act(0, x))),
    "pooling": lambda n, x: _after(n, nn.MaxPool2d(3, 1, 1)(n.act(0, x))),
    "neck": lambda n, x: n.wide(torch.cat([nn.Upsample(scale_factor=2)(n.act(0, x[..., ::2, ::2])), n.act(1, x)], 1)),
    "channels_last": lambda n, x: n.wide(
        torch.cat([n.act(i, x.contiguous(memory_format=torch.channels_last)) for i in (0, 1)], 1)
    ),
}


def _residual(layers: Layers, x: torch.Tensor) -> torch.Tensor:
    kept = layers.convs[0](x)
    return layers.convs[2](kept + norm_act(layers.convs[1](kept), layers.norms[1]))


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_the_same_to_the_last_bit(name: str) -> None:
    _same(NETWORKS[name])


@pytest.mark.parametrize("name", NETWORKS)
def test_what_was_computed_of_activations_is_not_kept(name: str) -> None:
    consumer = _kept(NETWORKS[name])[-2]  # the last convolution keeps its input and its weight
    assert isinstance(consumer, Activation | View | Derived)


def test_an_activation_is_freed_in_the_forward_pass() -> None:
    layers, x = _layers()
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
    layers, x = _layers()
    size = layers.convs[0](x).numel()
    with lean.on(size + 1), kept_bytes.counted() as kept:
        a, b = layers.act(0, x), layers.act(1, x)
        assert not recipes.wanted(a)
        _after(layers, a)
        assert isinstance(kept._kept[-2], Kept)
        layers.wide(torch.cat([a, b], 1))
    consumer = kept._kept[-2]
    assert isinstance(consumer, Derived)
    assert [type(part) for part in consumer._parts] == [Kept, Kept]
    assert not [part for part in consumer._parts if part._tensor.grad_fn is not None]
    with lean.on(size), kept_bytes.counted() as kept:
        y = layers.act(0, x)
        assert recipes.wanted(y)
        _after(layers, y)
        assert isinstance(kept._kept[-2], Activation)
        layers.narrow(y.chunk(2, 1)[1])  # small, but all of the activation would be kept for it
        assert isinstance(kept._kept[-2], View)


@pytest.mark.parametrize("smallest", [250, 375, 750])
def test_gradients_are_the_same_whatever_is_small(smallest: int) -> None:
    def network(layers: Layers, x: torch.Tensor) -> torch.Tensor:
        return _random_network(random.Random(smallest), layers, x)

    for one, other in zip(_gradients(network, True, 12, smallest), _gradients(network, False, 12), strict=True):
        assert torch.equal(one, other)


def test_nothing_is_kept_without_lean() -> None:
    layers, x = _layers()
    y = layers.act(0, x)
    assert not recipes.here()
    recipes.offer(y, lambda: y)
    with lean.on(0), kept_bytes.counted() as kept:
        _after(layers, y)
    assert isinstance(kept._kept[0], Kept)


def _changed_unseen(layers: Layers, x: torch.Tensor) -> torch.Tensor:
    y = layers.act(0, x)
    with torch.no_grad():
        y.mul_(2)  # not in the graph
    return layers.wide(torch.cat([y, layers.act(1, x)], 1)) + _after(layers, y)


def _sum_changed_unseen(layers: Layers, x: torch.Tensor) -> torch.Tensor:
    y = layers.act(0, x) + layers.act(1, x)
    with torch.no_grad():
        y[:, 1:].mul_(2)
    return layers.wide(torch.cat([y, layers.act(2, x)], 1)) + layers.narrow(y.chunk(2, 1)[1])


def _changed_in_the_graph(layers: Layers, x: torch.Tensor) -> torch.Tensor:
    y = layers.act(0, x)
    y[:, 1] *= 2
    return _after(layers, y) + layers.narrow(y.chunk(2, 1)[0])


@pytest.mark.parametrize("network", [_changed_unseen, _sum_changed_unseen, _changed_in_the_graph])
def test_an_activation_that_was_changed_in_place_is_kept_as_it_is(network: Network) -> None:
    _same(network)
    assert any(isinstance(keeping, Kept) and not keeping._tensor.requires_grad for keeping in _kept(network))


def test_an_activation_may_change_in_place_after_it_was_used() -> None:
    layers, x = _layers()
    expected = _gradients(lambda n, x: _after(n, n.act(0, x)), False)[1]
    with lean.on(0):
        y = layers.act(0, x)
        out = _after(layers, y)
    with torch.no_grad():
        y.zero_()
    (out * out).sum().backward()
    assert torch.equal(layers.convs[0].weight.grad, expected)


@pytest.mark.parametrize("what", ["convolution", "parameter", "output", "input"])
def test_other_changes_in_place_are_refused_as_torch_does(what: str) -> None:
    layers, x = _layers()

    def forward() -> torch.Tensor:
        z = layers.convs[0](x)
        y = norm_act(z, layers.norms[0])
        out = _after(layers, y.exp() if what == "output" else y)
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
    layers, x = _layers()
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


def test_lean_may_be_on_twice() -> None:
    layers, x = _layers()
    with lean.on(0):
        with lean.on(0):
            _after(layers, layers.act(0, x)).sum().backward()
        _after(layers, layers.act(0, x)).sum().backward()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_recipe_whose_source_was_changed_is_refused_by_itself(which: int) -> None:
    layers, x = _layers()
    with lean.on(0):
        z = layers.convs[0](x)
        loss = _after(layers, norm_act(z, layers.norms[0])).sum()
    with torch.no_grad():
        (z, layers.norms[0].weight, layers.norms[0].bias)[which].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, layers.convs[1].weight)  # asks for nothing else that was saved


def test_results_that_a_node_keeps_for_itself_leak_nothing() -> None:
    gc.disable()
    try:
        with lean.on(0):
            y = (torch.rand(3, requires_grad=True) * 2).exp().sigmoid()
        freed = weakref.ref(y)
        del y
        assert freed() is None
    finally:
        gc.enable()


def test_a_new_tensor_is_not_taken_for_the_old_one_of_the_same_id() -> None:
    x = torch.rand(3, requires_grad=True)
    with lean.on(0):
        entries = recipes._thread.known._entries
        y, other = x * 2, x * 3
        recipes.offer(y, lambda: x.detach() * 2)
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
        recipes.offer(y, lambda: torch.arange(6.0))
        assert isinstance(recipes.pack(view()), Activation)  # as `detach()`
        del y
        assert isinstance(recipes.pack(view()), Kept)


def test_a_detached_activation_is_known_while_the_activation_lives() -> None:
    layers, x = _layers()
    with lean.on(0), kept_bytes.counted() as kept:
        y = layers.act(0, x)
        _after(layers, y.detach())
        assert isinstance(kept._kept[-2], Activation)
        _after(layers, y.detach()[:1])  # of another shape at the same address
        assert isinstance(kept._kept[-2], Kept)
        alias = y.detach()
        with torch.no_grad():
            y.add_(1)
        _after(layers, alias)
        assert isinstance(kept._kept[-2], Kept)
        other = layers.act(0, x)
        alias = other.data  # with a counter of its own
        _after(layers, alias.add_(1))
        assert isinstance(kept._kept[-2], Kept)
    _same(lambda n, x: (lambda y: _after(n, y.detach()) + n.convs[2](y))(n.act(0, x)))


def test_long_chains_of_sums_are_kept_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    depth = 3 * MOST_STEPS

    def chain(layers: Layers, x: torch.Tensor) -> torch.Tensor:
        y = layers.act(0, x)
        for index in range(1, depth):
            y = y + layers.act(index, y)
        return y * 1

    _same(chain, depth)
    kept = _kept(chain, depth)
    assert max(keeping.steps for keeping in kept) == MOST_STEPS
    made = []
    real = Activation._make
    monkeypatch.setattr(Activation, "_make", lambda self: made.append(self) or real(self))
    _gradients(chain, True, depth)
    assert len(made) <= depth  # each of them once, however many sums it is in


def test_both_halves_of_a_chunk_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = Activation._make
    monkeypatch.setattr(Activation, "_make", lambda self: made.append(self) or real(self))
    _gradients(NETWORKS["cat of halves"], True)
    assert len(made) == 2


def test_a_conversion_of_autocast_is_kept() -> None:
    layers, x = _layers()
    with lean.on(0):
        y = layers.act(0, x).bfloat16()
        recipes.offer(y, lambda: layers.act(0, x).bfloat16())
        enlarged = nn.functional.interpolate(y, scale_factor=2).float()  # as autocast does it on some devices
        recipes.here().derive(enlarged, lambda part: nn.functional.interpolate(part, scale_factor=2), (y,))
        assert isinstance(recipes.pack(enlarged), Kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_gives_the_same_gradients(dtype: torch.dtype) -> None:
    def network(layers: Layers, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is not torch.float32):
            y = nn.Upsample(scale_factor=2)(layers.act(0, x) + layers.act(1, x))
            return layers.wide(torch.cat([y, layers.act(2, y)], 1)).float()

    _same(network)


def test_layout_and_shape_are_those_of_the_first_time() -> None:
    x = torch.rand(2, 4, 3, 3, requires_grad=True)
    with lean.on(0):
        y = (x * 2).contiguous(memory_format=torch.channels_last)
        recipes.offer(y, lambda: (x * 2).detach(), (x,))  # contiguous
        again = recipes.unpack(recipes.pack(y[:, 1:]))
    assert again.stride() == y[:, 1:].stride()
    assert torch.equal(again, y[:, 1:])


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_inside(reentrant: bool) -> None:
    def network(layers: Layers, x: torch.Tensor) -> torch.Tensor:
        inner = checkpoint(lambda y: _after(layers, layers.act(0, y)), layers.act(2, x), use_reentrant=reentrant)
        return layers.convs[3](norm_act(inner, layers.norms[3]))

    _same(network)


def test_backward_twice() -> None:
    layers, x = _layers()
    with lean.on(0):
        loss = layers.wide(torch.cat([layers.act(0, x), layers.act(1, x)], 1)).square().sum()
    loss.backward(retain_graph=True)
    once = layers.convs[0].weight.grad.clone()
    loss.backward()
    assert torch.equal(layers.convs[0].weight.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_gradients_of_gradients() -> None:
    torch.manual_seed(0)
    x, w, v = (torch.rand(2, 4, 3, 3, dtype=torch.float64), *torch.rand(2, 4, 4, 1, 1, dtype=torch.float64))
    w, v = w.requires_grad_(), v.requires_grad_()
    modes: list[bool] = []

    def penalty(on: bool) -> torch.Tensor:
        def forward() -> torch.Tensor:
            z = nn.functional.conv2d(x, w)
            y = z.sigmoid()
            if recipes.here():
                recipes.offer(y, lambda: modes.append(torch.is_grad_enabled()) or z.sigmoid(), (z,))
            return nn.functional.conv2d(torch.cat([y[:, :2], y[:, 2:]], 1), v).square().sum()

        if on:
            with lean.on(0):
                loss = forward()
        else:
            loss = forward()
        (grad,) = torch.autograd.grad(loss, v, create_graph=True)
        return torch.stack(torch.autograd.grad(grad.square().sum(), (w, v)))

    assert torch.equal(penalty(True), penalty(False))
    assert modes
    assert not any(modes)


def test_several_forward_passes_before_one_optimizer_step_and_one_under_no_grad() -> None:
    layers, x = _layers()
    with lean.on(0):
        first = NETWORKS["neck"](layers, x)
        with torch.no_grad():
            NETWORKS["neck"](layers, x)
        second = NETWORKS["neck"](layers, 2 * x)
    first.square().sum().backward()
    second.square().sum().backward()
    plain, _ = _layers()
    for scale in (1, 2):
        NETWORKS["neck"](plain, scale * x).square().sum().backward()
    for one, other in zip(layers.parameters(), plain.parameters(), strict=True):
        assert (one.grad is None and other.grad is None) or torch.equal(one.grad, other.grad)


def test_nothing_gathers_while_lean_stays_on() -> None:
    layers, x = _layers()
    with lean.on(0):
        for network in NETWORKS.values():
            network(layers, x).sum().backward()
        assert recipes._thread.known is not None
        assert not recipes._thread.known._entries


def test_threads_are_apart() -> None:
    found: dict[str, object] = {}

    def other() -> None:
        found["wanted"] = recipes.here()
        found["gradients"] = _gradients(NETWORKS["neck"], True)

    with lean.on(0):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert recipes.here()
    assert found["wanted"] is None
    for one, two in zip(found["gradients"], _gradients(NETWORKS["neck"], False), strict=True):
        assert torch.equal(one, two)


def test_torch_is_as_it_was_after_an_error() -> None:
    cat, interpolate = torch.cat, nn.functional.interpolate
    with pytest.raises(KeyboardInterrupt), lean.on(0):
        with lean.on(0):
            assert torch.cat is not cat
        assert recipes.here()
        assert torch.cat is not cat
        raise KeyboardInterrupt
    assert not recipes.here()
    assert torch.cat is cat
    assert nn.functional.interpolate is interpolate
    layers, x = _layers()
    y = layers.act(0, x).requires_grad_()
    assert _after(layers, y).grad_fn._saved_input is y  # no hooks are left


class Joined(nn.Module):
    """What is scripted."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Join, pool and enlarge."""
        return nn.functional.interpolate(nn.functional.max_pool2d(torch.cat([x, x], 1), 2), scale_factor=2.0)


def test_modules_can_be_scripted_between_forward_passes_of_a_run() -> None:
    """TorchScript knows functions of torch by their objects; the fixture of this file is what a run has on."""
    x = torch.rand(1, 2, 4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert torch.equal(torch.jit.script(Joined())(x), Joined()(x))


def test_additions_work_as_ever() -> None:
    assert hasattr(torch.Tensor.__add__, "__wrapped__")
    assert torch.ones(2).__add__("word") is NotImplemented
    assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))
    assert torch.equal(1 + nn.Parameter(torch.ones(2)), torch.ones(2) + 1)
    with pytest.raises(TypeError, match="unsupported operand"):
        torch.ones(2) + "word"


@pytest.mark.parametrize("seed", range(25))
def test_random_networks(seed: int) -> None:
    _same(lambda layers, x: _random_network(random.Random(seed), layers, x), count=12)


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


def test_the_stand_in_computes_the_same_bits_again() -> None:
    layers, x = _layers()
    norm = layers.norms[0]
    assert torch.equal(norm_act(x, norm), activated(x, norm.weight, norm.bias, norm.eps, True))
