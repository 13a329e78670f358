"""Recipes beside what else torch does: autocast, checkpointing, retained graphs, threads, errors, scripting."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from yolo_rocm.norm import lean, recipes
from yolo_rocm.norm.keeping import Derived

from .lean_layers import NETWORKS, Layers, after, layers_of, same
from .stand_in import norm_act, offer

pytestmark = pytest.mark.usefixtures("lean_installed")


def test_autocast_gives_the_same_gradients() -> None:
    def network(layers: Layers, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = nn.Upsample(scale_factor=2)(layers.act(0, x) + layers.act(1, x))
            return layers.wide(torch.cat([y, layers.act(2, y)], 1)).float()

    same(network)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_inside(reentrant: bool) -> None:
    def network(layers: Layers, x: torch.Tensor) -> torch.Tensor:
        inner = checkpoint(lambda y: after(layers, layers.act(0, y)), layers.act(2, x), use_reentrant=reentrant)
        return layers.convs[3](norm_act(inner, layers.norms[3]))

    same(network)


def test_backward_twice() -> None:
    layers, x = layers_of()
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
            if recipes.active_recipes():
                offer(y, lambda: modes.append(torch.is_grad_enabled()) or z.sigmoid(), (z,))
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


def test_nothing_gathers_while_lean_stays_on() -> None:
    layers, x = layers_of()
    with lean.on(0):
        for network in NETWORKS.values():
            network(layers, x).sum().backward()
        assert recipes._thread.known is not None
        assert not recipes._thread.known._entries


def test_torch_is_as_it_was_after_an_error() -> None:
    cat, interpolate = torch.cat, nn.functional.interpolate
    with pytest.raises(KeyboardInterrupt), lean.on(0):
        with lean.on(0):
            assert torch.cat is not cat
        assert recipes.active_recipes()
        assert torch.cat is not cat
        raise KeyboardInterrupt
    assert not recipes.active_recipes()
    assert torch.cat is cat
    assert nn.functional.interpolate is interpolate
    layers, x = layers_of()
    y = layers.act(0, x).requires_grad_()
    assert after(layers, y).grad_fn._saved_input is y  # no hooks are left


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


def test_a_function_of_a_user_is_noted_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    native = torch.cat
    for users in (lambda *args, **kwargs: native(*args, **kwargs) for _ in range(2)):
        monkeypatch.setattr(torch, "cat", users)
        for _ in range(2):
            with lean.on(0):
                assert torch.cat.__wrapped__ is users
                layers, x = layers_of()
                joined = torch.cat([layers.act(0, x), layers.act(1, x)], 1)
                assert isinstance(recipes.pack(joined), Derived)
            assert torch.cat is users


def test_additions_work_as_ever() -> None:
    assert hasattr(torch.Tensor.__add__, "__wrapped__")
    assert torch.ones(2).__add__("word") is NotImplemented
    assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))
    assert torch.equal(1 + nn.Parameter(torch.ones(2)), torch.ones(2) + 1)
    with pytest.raises(TypeError, match="unsupported operand"):
        torch.ones(2) + "word"
