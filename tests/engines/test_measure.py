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
        self.now = self.at = self.host = 0.0  # of Python, in seconds

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
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.host))
    with STATE.replaced():
        yield clock


@pytest.mark.parametrize(
    ("head_start", "host_s", "calls", "spent"), [(True, 0.005, 1, 3.0), (False, 0.005, 4, 2.0), (False, 0.0, 16, 2.0)]
)
def test_calls_that_launch_without_end_are_timed_in_a_row(gpu, head_start, host_s, calls, spent):
    """Calls of 5 ms each fill 20 ms, and a row has an end."""
    made = []

    def call() -> None:
        made.append(1)
        gpu.now += 3.0 if len(made) % 2 else 1.0  # what every other call pays is shared
        gpu.host += host_s

    device_ms, host_ms = measure.timed(call, CUDA, repeats=3, head_start=head_start)
    assert len(made) == 2 + 3 * calls
    assert device_ms == spent
    assert host_ms == pytest.approx(host_s * 1e3)


def test_cycles_of_a_sleep_are_measured_by_the_second(gpu, monkeypatch):
    """The first one may find the device idle."""
    slept, waits = [], []

    def sleep(cycles):
        gpu.now += cycles / 2e6 + (0 if slept else 5.0)
        slept.append(cycles)

    monkeypatch.setattr(torch.cuda, "_sleep", sleep, raising=False)
    measure.timed(lambda: waits.append(gpu.now), CUDA, repeats=1)
    assert slept == [200_000, 200_000, pytest.approx(0.3 * 2e6, abs=1)]  # the shortest head start


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
