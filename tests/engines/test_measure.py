"""How calls are timed: as kernels run, and in a row where Python cannot be ahead of the device."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.engines import measure
from yolo_rocm.engines.device_state import STATE

CUDA = torch.device("cuda", 0)


class Clock:
    """A GPU whose calls take what they say; its events and the time of its work."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at = 0.0
        self.host = 0.0  # in seconds: the time of Python

    def __call__(self, enable_timing: bool) -> Clock:
        """Make an event."""
        event = Clock()
        event.clock = self
        return event

    def record(self) -> None:
        """Take the time."""
        self.at = self.clock.now

    def synchronize(self) -> None:
        """Wait for nothing."""

    def elapsed_time(self, other: Clock) -> float:
        """Return what lies between two events."""
        return other.at - self.at


@pytest.fixture
def gpu(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(torch.cuda, "Event", clock)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None, raising=False)
    monkeypatch.setattr(measure, "_cycles_per_millisecond", lambda device: 1.0)
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.host))
    return clock


def test_calls_that_launch_without_end_are_timed_in_a_row(gpu):
    calls = []

    def call() -> None:
        calls.append(gpu.now)
        gpu.now += 3.0 if len(calls) % 2 else 1.0  # what every other call pays is shared
        gpu.host += 0.005

    assert measure.milliseconds(call, CUDA, repeats=3) in (1.0, 3.0)
    assert len(calls) == 2 + 3
    calls.clear()
    taken = measure.milliseconds(call, CUDA, repeats=3, head_start=False)
    assert len(calls) == 2 + 3 * 4  # of 5 ms each, in 20 ms
    assert taken == 2.0


def test_a_row_has_an_end(gpu):
    calls = []
    measure.milliseconds(lambda: calls.append(0), CUDA, repeats=1, head_start=False)
    assert len(calls) == 2 + measure._BURST_CALLS


@pytest.mark.parametrize("cycles_per_ms", [100_000.0, 2e6])
def test_cycles_of_a_sleep_are_measured(monkeypatch, cycles_per_ms):
    """By events around the second sleep: the first one may find the device idle."""
    clock, slept = Clock(), []

    def sleep(cycles):
        clock.now += cycles / cycles_per_ms + (0 if slept else 5.0)
        slept.append(cycles)

    monkeypatch.setattr(torch.cuda, "Event", clock)
    monkeypatch.setattr(torch.cuda, "_sleep", sleep, raising=False)
    STATE.clear()
    assert measure._cycles_per_millisecond(CUDA) == pytest.approx(cycles_per_ms)
    STATE.clear()
    assert len(slept) == 2


def state() -> tuple[object, ...]:
    flags = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.is_grad_enabled())
    excluded = getattr(torch._C, "_dispatch_tls_local_exclude_set", lambda: "")()
    return (*flags, str(excluded))


def test_kernels_are_timed_below_autograd_and_its_views():
    before = state()
    x = torch.zeros(2, 3, requires_grad=True)
    with measure.as_in_the_seam():
        assert state()[:3] == (False, False, False)
        view = x.select(0, 1)
        if hasattr(torch._C, "_AutoDispatchBelowADInplaceOrView"):
            assert not view._is_view()  # nobody has noted whose it is
    assert state() == before
    assert x.select(0, 1)._is_view()
    with measure.without_tf32():
        assert state()[:3] == (False, False, before[2])
    assert state() == before
