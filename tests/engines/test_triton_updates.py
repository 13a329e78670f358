"""Launches of kernels that change tensors in place: proven on copies, so that nothing is changed twice."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton import direct, launch
from yolo_rocm.engines.triton.call import Call

CALL = Call("made.up", "counting", (1, 1, 1), (7, 0.5), {"BLOCK": 16}, 4, 1, updated=(0, 1))
REST = (16, 32, 48, 7, 0.5, 16)
HOOKS = ("packed", None, None, None)


class Kernel:
    """Adds one to a float and to a counter, and writes the float into its result; directly it counts by `step`."""

    def __init__(self, step: int = 1) -> None:
        self.by_triton, self.direct, self.step = 0, 0, step

    def __getitem__(self, grid):
        """Return what Triton launches by."""

        def by_triton(value, count, result, *numbers, **options):
            self.by_triton += 1
            value += 1
            count += 1
            result.copy_(value)
            return SimpleNamespace(run=self._run, function=1, packed_metadata=2)

        return by_triton

    def _run(self, *arguments):
        self.direct += 1
        value, count, result = arguments[9:12]
        assert arguments[12:] == (7, 0.5, 16)
        kept = ctypes.c_float.from_address(value)
        kept.value += 1
        ctypes.c_int64.from_address(count).value += self.step
        ctypes.c_float.from_address(result).value = kept.value


@pytest.fixture
def use(monkeypatch):
    """Launch a kernel on a pretended device."""
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(direct, "triton_version", lambda: (3, 6))
    monkeypatch.setattr(direct, "current_device", lambda: -1)
    monkeypatch.setattr(direct, "current_stream", lambda number: 5)

    def using(kernel: Kernel) -> Kernel:
        monkeypatch.setattr(launch, "kernel_of", lambda call: kernel)
        return kernel

    with STATE.replaced():
        yield using


# What changes something else than Triton's own launch is given up, after one comparison on copies.
@pytest.mark.parametrize(("key", "step", "launched"), [("key", 1, (1, 4)), ("key", 2, (4, 1)), (None, 1, (4, 1))])
def test_each_launch_counts_once(use, key, step, launched):
    kernel, at_hand = use(Kernel(step)), launch.Launch(key, CALL)
    given = torch.full((1,), 10.0), torch.full((1,), 41), torch.zeros(1)
    for number in range(1, 5):
        at_hand(*given)
        assert [float(each) for each in given] == [10 + number, 41 + number, 10 + number]
    assert (kernel.by_triton, kernel.direct) == launched  # without a key it is not repeated


@pytest.mark.parametrize(
    ("version", "more", "expected"),
    [
        ((3, 6), {"launch_pdl": 0}, ("launch", (1, 1, 1, 5, "f", 0, 0, None, None, *HOOKS, *REST))),
        ((3, 6), {}, ("launch", (0, 1, 1, 1, 5, "f", None, *HOOKS, *REST))),
        ((3, 5), {"launch_pdl": 0}, ("run", (1, 1, 1, 5, "f", *HOOKS, *REST))),
        ((3, 6), {"launch_pdl": 0, "global_scratch_size": 128}, ("run", (1, 1, 1, 5, "f", *HOOKS, *REST))),
    ],
    ids=["NVIDIA", "AMD", "another version", "memory that the kernel wants"],
)
def test_the_wrapper_of_the_launcher_is_left_out_where_it_was_read(use, monkeypatch, version, more, expected):
    monkeypatch.setattr(direct, "triton_version", lambda: version)
    monkeypatch.setattr(direct, "_agrees", lambda *given: True)
    calls = []

    class Launcher(SimpleNamespace):
        def __call__(self, *arguments):
            calls.append(("run", arguments))

    run = Launcher(**{"launch_cooperative_grid": 0, "global_scratch_size": 0, "profile_scratch_size": 0, **more})
    run.launch = lambda *arguments: calls.append(("launch", arguments))
    compiled = SimpleNamespace(run=run, function="f", packed_metadata="packed")
    aligned = torch.empty(8, dtype=torch.float64)
    again = direct.direct(compiled, CALL, (aligned,), {})
    assert again(-1, 16, 32, 48)
    assert not again(-1, 16, 33, 48)
    assert calls == [expected]
