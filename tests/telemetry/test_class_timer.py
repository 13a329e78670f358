"""A step by class of operator: by marks of modules and backward nodes, without changing a bit of the result."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from yolo_rocm.telemetry import class_timer
from yolo_rocm.telemetry.class_timer import ClassTimer
from yolo_rocm.telemetry.places import BACKWARD, LOSS, NETWORK, OPTIMIZER

CPU = torch.device("cpu")
needs_nodes = pytest.mark.skipif(
    torch.__version__.startswith("1."), reason="torch < 2.0 does not say which node begins"
)


class Block(nn.Module):
    """As Ultralytics has them; `fused` calls neither BatchNorm nor activation."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.conv, self.bn, self.act, self.fused = nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.SiLU(), fused

    def forward(self, x):
        """Compute it."""
        y = self.conv(x)
        if self.fused:
            return nn.functional.silu(self.bn.forward(y))
        return self.act(self.bn(y))


def network(fused: bool = False) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Block(fused), nn.Upsample(scale_factor=2), Block(fused))


def step(model: nn.Module, timer: ClassTimer | None) -> list[torch.Tensor]:
    def reached(place, value=None):
        if timer is not None:
            timer.reached(place, value)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if timer is not None:
        timer.begin()
    y = model(torch.linspace(-1, 1, 2 * 3 * 12 * 12).reshape(2, 3, 12, 12))
    reached(NETWORK, {"boxes": [y]})
    loss = (y.sigmoid() * y).sum()
    reached(LOSS, loss)
    loss.backward()
    reached(BACKWARD)
    optimizer.step()
    reached(OPTIMIZER)
    if timer is not None:
        timer.end()
    return [loss.detach(), *(p.detach().clone() for p in model.parameters()), *model.buffers()]


@pytest.fixture
def ticking(monkeypatch):
    """Let every mark be a second after the one before."""
    clock = itertools.count()
    monkeypatch.setattr(class_timer, "mark", lambda device: float(next(clock)))


@needs_nodes
@pytest.mark.parametrize("fused", [False, True])
def test_every_stretch_goes_to_what_has_ended(ticking, fused):
    model = network(fused)
    timer = ClassTimer(model, CPU)
    step(model, timer)
    # Of each block a convolution, a normalisation and what ends it, an activation; the same in the backward pass. The
    # node that begins closes what was before it: of the first one that is the loss, the upsampling has no class.
    assert timer.result() == {
        "convolution": 4000.0,
        "normalisation": 4000.0 if fused else 6000.0,
        "activation": 2000.0 if fused else 4000.0,
        "loss": 2000.0,
        "optimizer": 1000.0,
        "other": 11000.0 if fused else 15000.0,
    }


@pytest.mark.parametrize("fused", [False, True])
def test_a_timed_step_computes_the_same_bits_and_leaves_nothing(fused):
    plain = step(network(fused), None)
    model = network(fused)
    timer = ClassTimer(model, CPU)
    timed = step(model, timer)
    assert all(torch.equal(a, b) for a, b in zip(plain, timed, strict=True))
    assert not nn.modules.module._global_forward_hooks
    assert not nn.modules.module._global_forward_pre_hooks
    result = timer.result()
    step(model, None)
    assert timer.result() == result
