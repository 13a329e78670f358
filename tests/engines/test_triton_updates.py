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


class Kernel:
    """Adds one to a float and to a counter, and writes the float into its result; directly it adds `step`."""

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
        kept.value += self.step
        ctypes.c_int64.from_address(count).value += self.step
        ctypes.c_float.from_address(result).value = kept.value


@pytest.fixture
def use(monkeypatch):
    """Launch a kernel on a pretended device."""
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(direct, "triton_version", lambda: (3, 6))
    monkeypatch.setattr(direct, "current_device", lambda: -1)
    monkeypatch.setattr(direct, "current_stream", lambda number: 0)
    STATE.clear()

    def using(kernel: Kernel) -> Kernel:
        monkeypatch.setattr(launch, "kernel_of", lambda call: kernel)
        return kernel

    yield using
    STATE.clear()


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.full((1,), 10.0), torch.full((1,), 41), torch.zeros(1)


def test_each_launch_counts_once(use):
    kernel, given = use(Kernel()), tensors()
    for number in range(1, 5):
        launch.launch("key", lambda: CALL, given)
        assert [float(each) for each in given] == [10 + number, 41 + number, 10 + number]
    assert (kernel.by_triton, kernel.direct) == (1, 4)  # one of them was the comparison, on copies
    assert direct.given_up() is None


def test_one_that_changes_something_else_is_given_up(use):
    kernel, given = use(Kernel(step=2)), tensors()
    for number in range(1, 4):
        launch.launch("key", lambda: CALL, given)
        assert [float(each) for each in given] == [10 + number, 41 + number, 10 + number]
    assert (kernel.by_triton, kernel.direct) == (3, 1)
    assert "other numbers" in direct.given_up()


def test_a_launch_at_hand_is_repeated_and_one_without_a_key_is_not(use):
    kernel, given = use(Kernel()), tensors()
    at_hand, forgotten = launch.Launch("key", CALL), launch.Launch(None, CALL)
    for _ in range(3):
        at_hand(*given)
    assert (kernel.by_triton, kernel.direct) == (1, 3)
    for _ in range(2):
        forgotten(*given)
    assert (kernel.by_triton, kernel.direct) == (3, 3)
    assert float(given[1]) == 46
    assert launch.repeating(None) is None


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_launch_has_to_write_a_result_of_any_type(use, dtype, writes):
    result = torch.arange(4).to(dtype)
    expected = result.clone()

    def again(number, address):
        if writes:
            ctypes.memmove(address, expected.data_ptr(), expected.numel() * expected.element_size())
        return True

    assert direct._agrees(again, (result,), {}) is writes
    assert torch.equal(result, expected)
    assert (direct.given_up() is None) is writes


class Launcher(SimpleNamespace):
    """As Triton's own: it notes how it was called."""

    def __call__(self, *arguments):
        """Take what a compiled kernel's `run` takes."""
        self.calls.append(("run", arguments))


def launcher(**more) -> Launcher:
    made = Launcher(calls=[], launch_cooperative_grid=0, global_scratch_size=0, profile_scratch_size=0, **more)
    made.launch = lambda *arguments: made.calls.append(("launch", arguments))
    return made


REST = (16, 32, 48, 7, 0.5, 16)
HOOKS = ("packed", None, None, None)


@pytest.mark.parametrize(
    ("version", "run", "expected"),
    [
        ((3, 6), launcher(launch_pdl=0), ("launch", (1, 1, 1, 5, "f", 0, 0, None, None, *HOOKS, *REST))),
        ((3, 6), launcher(), ("launch", (0, 1, 1, 1, 5, "f", None, *HOOKS, *REST))),
        ((3, 5), launcher(launch_pdl=0), ("run", (1, 1, 1, 5, "f", *HOOKS, *REST))),
    ],
    ids=["NVIDIA", "AMD", "another version"],
)
def test_the_wrapper_of_the_launcher_is_left_out_where_it_was_read(use, monkeypatch, version, run, expected):
    monkeypatch.setattr(direct, "triton_version", lambda: version)
    monkeypatch.setattr(direct, "current_stream", lambda number: 5)
    again = direct._repeated(SimpleNamespace(run=run, function="f", packed_metadata="packed"), CALL)
    assert again(-1, 16, 32, 48)
    assert not again(-1, 16, 33, 48)
    assert run.calls == [expected]


def test_memory_that_a_kernel_wants_is_left_to_the_launcher(use, monkeypatch):
    run = launcher(launch_pdl=0)
    run.global_scratch_size = 128
    again = direct._repeated(SimpleNamespace(run=run, function="f", packed_metadata="packed"), CALL)
    assert again(-1, 16, 32, 48)
    assert [how for how, _ in run.calls] == ["run"]
