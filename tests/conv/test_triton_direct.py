"""The launch that skips Triton's own: taken where it was proven to do the same, and given up where it fails."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.conv.triton import calls
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton import direct, launch

CALL = calls.transpose((2, 24, 9, 11))


class Kernel:
    """Writes one more than its source, launched by Triton or directly; `bad` is what goes wrong in the latter.

    Addresses mean nothing here: the tensors are those of the launch.
    """

    def __init__(self, bad=None) -> None:
        self.by_triton, self.direct, self.bad = 0, 0, bad
        self.tensors: tuple[torch.Tensor, ...] = ()

    def launched(self, *tensors):
        """Launch on tensors, as a pass does."""
        self.tensors = tensors
        launch.launch("key", lambda: CALL, tensors)
        return tensors[-1].clone()

    def __getitem__(self, grid):
        """Return what Triton launches by."""

        def by_triton(*arguments, **options):
            self.by_triton += 1
            self._write()
            return self.compiled()

        return by_triton

    def compiled(self):
        """Return what Triton has compiled."""
        return SimpleNamespace(run=self._run, function=1, packed_metadata=2)

    def _run(self, *arguments):
        self.direct += 1
        if self.bad is not None:
            self.bad(self)
        else:
            self._write()

    def _write(self) -> None:
        source, result = self.tensors
        result.copy_(source + 1)


@pytest.fixture
def use(monkeypatch, caplog):
    """Launch a kernel with a version of Triton, on a pretended device."""
    caplog.set_level(logging.WARNING, logger="yolo_rocm")
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(direct, "current_device", lambda: -1)
    monkeypatch.setattr(direct, "current_stream", lambda number: 0)

    def using(kernel: Kernel, version=(3, 6)) -> Kernel:
        monkeypatch.setattr(direct, "triton_version", lambda: version)
        monkeypatch.setattr(launch, "kernel_of", lambda call: kernel)
        return kernel

    with STATE.replaced():
        yield using


def tensors(dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(32.0).to(dtype), torch.zeros(32, dtype=dtype)


@pytest.mark.parametrize(
    ("version", "dtype"), [((3, 3), torch.float32), ((3, 6), torch.float16), ((3, 9), torch.bfloat16)], ids=str
)
def test_it_is_compared_once_and_taken_from_then_on(use, caplog, version, dtype):
    kernel, (x, y) = use(Kernel(), version), tensors(dtype)
    assert torch.equal(kernel.launched(x, y), x + 1)
    assert (kernel.by_triton, kernel.direct) == (1, 1)  # the second is the comparison
    for _ in range(3):
        y.zero_()
        assert torch.equal(kernel.launched(x, y), x + 1)
    assert (kernel.by_triton, kernel.direct) == (1, 4)
    assert not direct._given_up
    launch.launch("another problem", lambda: CALL, (x, y))
    assert (kernel.by_triton, kernel.direct) == (2, 4)  # the same kernel: not compared again
    assert launch.repeating("another problem") is not None
    assert not caplog.records


def takes_other_arguments(kernel: Kernel) -> None:
    raise TypeError("function takes exactly 12 arguments (60 given)")


def does_nothing(kernel: Kernel) -> None:
    return None


def writes_something_else(kernel: Kernel) -> None:
    kernel.tensors[-1].fill_(3.0)


BAD = {
    "arguments": (takes_other_arguments, "TypeError: function takes exactly 12 arguments"),
    "nothing": (does_nothing, "other numbers than Triton's own launch"),
    "numbers": (writes_something_else, "other numbers than Triton's own launch"),
}


@pytest.mark.parametrize("how", BAD)
def test_one_that_does_not_do_the_same_is_given_up_with_one_line(use, caplog, how):
    bad, words = BAD[how]
    kernel, (x, y) = use(Kernel(bad)), tensors()
    for _ in range(4):
        y.zero_()
        assert torch.equal(kernel.launched(x, y), x + 1)
    assert (kernel.by_triton, kernel.direct) == (4, 1)
    (record,) = caplog.records
    assert words in record.getMessage()
    assert "Triton 3.6's own" in record.getMessage()
    assert words in "".join(direct._given_up)
    assert launch.repeating("key") is None


@pytest.mark.parametrize(
    ("version", "missing"), [((3, 2), None), ((3, 10), None), ((3, 6), "run"), ((3, 6), "packed_metadata")], ids=str
)
def test_what_nobody_has_read_is_launched_by_triton(use, caplog, monkeypatch, version, missing):
    """Versions, which need no word, and kernels that are not what they were."""
    kernel, (x, y) = use(Kernel(), version), tensors()
    whole = kernel.compiled()
    if missing is not None:
        delattr(whole, missing)
    monkeypatch.setattr(kernel, "compiled", lambda: whole)
    for _ in range(3):
        assert torch.equal(kernel.launched(x, y), x + 1)
    assert (kernel.by_triton, kernel.direct) == (3, 0)
    assert [missing in record.getMessage() for record in caplog.records] == [True] * (missing is not None)


def test_one_that_fails_later_is_given_up_too(use, caplog):
    kernel, (x, y) = use(Kernel()), tensors()
    kernel.launched(x, y)
    kernel.launched(x, y)
    again = launch.repeating("key")
    assert not again(3, 0, 16)  # another device than torch's
    kernel.bad = takes_other_arguments
    for _ in range(3):
        y.zero_()
        assert torch.equal(kernel.launched(x, y), x + 1)
    assert (kernel.by_triton, kernel.direct) == (4, 3)
    assert not again(-1, 0, 16)  # who has kept it is told as well
    assert kernel.direct == 3
    assert len(caplog.records) == 1
