"""Moving averages in a few calls: the bits of older Ultralytics' loop, and nothing of newer ones."""

from __future__ import annotations

import copy
from types import FunctionType, SimpleNamespace

import pytest
import torch
from torch import nn
from ultralytics.utils.torch_utils import ModelEMA

from yolo_rocm.ultralytics_hooks import averages
from yolo_rocm.ultralytics_hooks.averages import LOOPS, averages_at_once


def loop(which):
    """Return the loop of a release, as it is in its module."""
    return FunctionType(which.__code__, {"de_parallel": lambda m: m, "unwrap_model": lambda m: m}, which.__name__)


def network():
    torch.manual_seed(0)
    blocks = [layer for _ in range(30) for layer in (nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3))]
    return nn.Sequential(*blocks)


def averaged(update, model):
    """Update an average four times, and return it."""
    torch.manual_seed(1)
    average = SimpleNamespace(enabled=True, updates=0, decay=lambda x: 1 - 0.7**x, ema=copy.deepcopy(model))
    for _ in range(4):
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor.copy_(torch.randn(tensor.shape) * 3)
        update(average, model)
    assert average.updates == 4
    return average.ema.state_dict()


@pytest.fixture(params=LOOPS, ids=lambda which: which.__name__)
def old(request, monkeypatch):
    made = loop(request.param)
    monkeypatch.setattr(ModelEMA, "update", made)
    return made


def test_the_bits_are_those_of_the_loop(old, monkeypatch):
    calls = []
    inner = torch._foreach_add_
    monkeypatch.setattr(torch, "_foreach_add_", lambda *args: calls.append(len(args[0])) or inner(*args))
    expected = averaged(old, network())
    with averages_at_once():
        found = averaged(ModelEMA.update, network())
    assert calls == [64, 64, 52] * 4  # weight and bias of both, mean and variance; the count of batches is no float
    assert list(found) == list(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert ModelEMA.update is old


def test_layers_that_share_a_tensor_are_left_to_the_loop(old, monkeypatch):
    monkeypatch.setattr(torch, "_foreach_add_", lambda *args: pytest.fail("twice in one call"))

    def shared():
        model = network()
        model[2].weight = model[0].weight
        return model

    expected = averaged(old, shared())
    with averages_at_once():
        found = averaged(ModelEMA.update, shared())
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_an_average_that_is_off_stays(old):
    model = network()
    average = SimpleNamespace(enabled=False, updates=0, decay=None, ema=copy.deepcopy(model))
    before = copy.deepcopy(average.ema.state_dict())
    with averages_at_once():
        ModelEMA.update(average, model)
    assert average.updates == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in average.ema.state_dict().items())


def test_code_that_is_not_known_is_left_alone(monkeypatch):
    def update(self, model):
        """Update something else."""

    monkeypatch.setattr(ModelEMA, "update", update)
    with averages_at_once():
        assert ModelEMA.update is update
    assert averages._at_once(update) is update
