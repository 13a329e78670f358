"""Fused SGD: the steps of the one that Ultralytics builds, overflows included, and its checkpoints."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from ultralytics.engine.trainer import BaseTrainer

from yolo_rocm.ultralytics_hooks import optimizers
from yolo_rocm.ultralytics_hooks.optimizers import fused_optimizers, fused_sgd

from ..tables import each_row

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))
DEVICES = pytest.mark.parametrize("device", ["cpu", GPU])
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
torch_has_it = pytest.mark.skipif(VERSION < (2, 5), reason="torch < 2.5 has no fused SGD that takes all layouts")
# Kernels multiply and add with one rounding or with two.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture
def on_cpu(monkeypatch):
    """Have SGD of a CPU fused as that of a GPU is."""
    monkeypatch.setattr(optimizers, "_DEVICES", ("cpu", "cuda"))


def network(device="cpu", layout=torch.contiguous_format):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1))
    return model.to(device, memory_format=layout)


def sgd(model, **more):
    """Return the optimizer that Ultralytics builds."""
    (weight, bias, *others), settings = model.parameters(), {"lr": 0.1, "momentum": 0.9, "nesterov": True, **more}
    groups = [
        {"params": others, **settings, "weight_decay": 5e-4, "param_group": "weight"},
        {"params": [weight], **settings, "weight_decay": 0.0, "param_group": "bn"},
        {"params": [bias], **settings, "param_group": "bias"},
    ]
    return torch.optim.SGD(groups)


def give_gradients(model, seed, factor=1.0):
    generator = torch.Generator().manual_seed(seed)
    for each in model.parameters():
        drawn = torch.randn(each.shape, generator=generator) * factor
        each.grad = torch.empty_like(each, requires_grad=False).copy_(drawn)


def steps(model, optimizer, seeds=range(4)):
    for seed in seeds:
        give_gradients(model, seed)
        optimizer.step()


def assert_close(found, expected):
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@torch_has_it
@DEVICES
def test_steps_are_those_of_sgd_also_of_what_was_frozen_at_first(device, on_cpu, monkeypatch):
    plain, model = network(device), network(device)
    optimizer = fused_sgd(sgd(model))
    calls = []
    inner = torch._fused_sgd_
    monkeypatch.setattr(torch, "_fused_sgd_", lambda *args, **more: calls.append(1) or inner(*args, **more))
    for each, its in ((plain, sgd(plain)), (model, optimizer)):
        assert bool(calls) is False
        for seed in range(4):
            give_gradients(each, seed)
            if seed < 2:
                each[2].weight.grad = None
            for group in its.param_groups:  # as warm-up and schedule do
                group["lr"] *= 0.5
            its.step()
            assert ("momentum_buffer" in its.state[each[2].weight]) == (seed >= 2)
    assert len(calls) >= 2 * 4
    assert_close(model, plain)
    assert [group["param_group"] for group in optimizer.param_groups] == ["weight", "bn", "bias"]


@torch_has_it
@DEVICES
def test_steps_that_overflow_are_left_out(device, on_cpu, monkeypatch):
    """Nobody waits to hear of them. Momentum of torch's own begins in memory that a first overflow leaves as it is."""
    filled = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *args, **more: filled(*args, **more).fill_(float("nan")))
    found = []
    for fused in (False, True):
        model = network(device)
        optimizer = fused_sgd(sgd(model)) if fused else sgd(model)
        scaler = torch.amp.GradScaler(device, init_scale=16.0)
        scaler.scale(torch.ones((), device=device))
        with monkeypatch.context() as patch:
            if fused:
                patch.setattr(torch.Tensor, "item", lambda self: pytest.fail("the host waits"))
            for seed in range(5):
                give_gradients(model, seed, float("inf") if seed in (0, 1, 3) else 16.0)
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
                scaler.step(optimizer)
                scaler.update(16.0)
                optimizer.zero_grad()
        found.append(model)
    assert_close(found[1], found[0])
    assert not torch.equal(found[1][0].weight, network(device)[0].weight)


@torch_has_it
@DEVICES
def test_checkpoints_are_those_of_sgd_both_ways(device, on_cpu):
    """Whoever has saved one had another layout, and a kernel for each operation."""
    plain = network(device)
    before = sgd(plain)
    steps(plain, before)
    model = network(device, torch.channels_last)
    optimizer = fused_sgd(sgd(model))
    assert [each.keys() for each in optimizer.param_groups] == [each.keys() for each in before.param_groups]
    model.load_state_dict(plain.state_dict())
    optimizer.load_state_dict(copy.deepcopy(before.state_dict()))
    assert all(group["fused"] and not group["foreach"] for group in optimizer.param_groups)
    steps(plain, before, range(4, 8))
    steps(model, optimizer, range(4, 8))
    assert_close(model, plain)
    saved = copy.deepcopy(optimizer.state_dict())
    assert saved["param_groups"] == before.state_dict()["param_groups"]
    assert all(group["fused"] for group in optimizer.param_groups)
    other = network(device)
    other.load_state_dict(model.state_dict())
    resumed = sgd(other)
    resumed.load_state_dict(saved)
    assert not any(group["fused"] for group in resumed.param_groups)
    steps(plain, before, range(8, 10))
    steps(other, resumed, range(8, 10))
    assert_close(other, plain)


@each_row(
    "make",
    [
        lambda parameters: torch.optim.Adam(parameters),
        lambda parameters: type("OwnSGD", (torch.optim.SGD,), {})(parameters, lr=0.1),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.1),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=False),
    ],
    ids=["Adam", "a class of somebody's own", "dampening", "chosen"],
)
def test_others_are_left_alone(on_cpu, make):
    optimizer = make(network().parameters())
    assert fused_sgd(optimizer) is optimizer


def test_a_cpu_and_one_that_has_made_steps_keep_theirs(monkeypatch):
    model = network()
    optimizer = sgd(model)
    assert fused_sgd(optimizer) is optimizer
    monkeypatch.setattr(optimizers, "_DEVICES", ("cpu",))
    steps(model, optimizer)
    assert fused_sgd(optimizer) is optimizer


@torch_has_it
def test_trainers_build_it_while_the_context_is_open(on_cpu):
    original = BaseTrainer.build_optimizer
    trainer = object.__new__(BaseTrainer)
    with fused_optimizers(), fused_optimizers():
        built = trainer.build_optimizer(network(), name="SGD", lr=0.01, momentum=0.9, decay=5e-4)
        other = trainer.build_optimizer(network(), name="AdamW", lr=0.01, momentum=0.9, decay=5e-4)
    assert BaseTrainer.build_optimizer is original
    assert type(built) is torch.optim.SGD
    assert all(group["fused"] for group in built.param_groups)
    assert type(other) is torch.optim.AdamW
    stock = trainer.build_optimizer(network(), name="SGD", lr=0.01, momentum=0.9, decay=5e-4)
    assert not any(group.get("fused") for group in stock.param_groups)
    assert built.state_dict() == stock.state_dict()
