"""What the host takes to launch a step, from the clock of the host and marks of a made device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.telemetry import launch_timer
from yolo_rocm.telemetry.launch_timer import LaunchTimer
from yolo_rocm.telemetry.medians import Medians


class Machine:
    """A host and a device in milliseconds: the device does one thing after the other, and not before it is launched."""

    def __init__(self) -> None:
        self.host = self.device = 0.0

    def launch(self, host: float, device: float) -> None:
        """Launch some work."""
        self.host += host
        self.device = max(self.device, self.host) + device

    def wait(self) -> None:
        """Let the host wait for the device."""
        self.host = max(self.host, self.device)


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(launch_timer, "mark", lambda device: max(made.device, made.host) / 1e3)
    monkeypatch.setattr(launch_timer.time, "perf_counter", lambda: made.host / 1e3)
    idle = SimpleNamespace(query=lambda: made.device <= made.host)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: idle)
    return made


def timed(machine: Machine, host: float, device: float, waits: bool = True, optimizes: bool = True) -> dict:
    """Take a step of four parts, each of them `host` ms to launch in ten pieces.

    The device takes `device` ms for the network and as much for the backward pass, a tenth of it for the others.
    """
    timer = LaunchTimer(torch.device("cuda"))
    timer.reached()
    for part in ("network", "loss", "backward", "optimizer")[: 4 if optimizes else 3]:
        may_wait = part in ("loss", "optimizer")
        for piece in range(10):
            machine.launch(host / 10, device / (100 if may_wait else 10))
            if waits and piece == 4 and may_wait:
                machine.wait()
        timer.reached()
    return timer.result()


@pytest.mark.parametrize("waits", [True, False])
def test_a_device_that_waits_for_the_host(machine, waits):
    found = timed(machine, 10, 2, waits)
    assert found["host_ms"] == pytest.approx(40, abs=2.5)
    assert found["device_ms"] == pytest.approx(40, abs=2.5)


@pytest.mark.parametrize("waits", [True, False])
def test_a_host_that_waits_for_the_device(machine, waits):
    found = timed(machine, 2, 40, waits)
    assert found["device_ms"] == pytest.approx(88, rel=0.1)
    assert 4 <= found["host_ms"] <= 8 + 4  # at most with half of what loss and optimizer compute themselves


def test_a_step_that_begins_behind_the_device_or_makes_no_optimizer_step_does_not_count(machine):
    assert timed(machine, 1, 5, optimizes=False) == {}
    machine.device = machine.host + 50
    assert timed(machine, 1, 5) == {}


def test_medians_wait_for_the_device_and_prefer_warm_steps():
    def timer(value, passed=True):
        return SimpleNamespace(has_passed=lambda: passed, result=lambda: {"a": value} if value else {})

    medians, late = Medians(), timer(9.0, passed=False)
    medians.take(2, timer(100.0))
    assert medians.of(5) == {"a": 100.0}
    for step, value in ((5, 3.0), (6, 1.0), (7, None), (8, 2.0)):
        medians.take(step, timer(value))
    assert medians.of(5) == {"a": 2.0}
    medians.take(9, late)
    assert medians.of(5) == {"a": 2.0}
    late.has_passed = lambda: True
    assert medians.of(5) == {"a": 2.5}
    assert Medians().of(5) == {}
