"""Switches of torch that are off while anybody needs them off, then as they were: above all the vendor library's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class _Switch:
    """A process-wide flag of torch, held off by a count of users and restored when the last one leaves."""

    def __init__(self, read: Callable[[], bool], write: Callable[[bool], object]) -> None:
        self._read = read
        self._write = write
        self._lock = threading.Lock()
        self._users = 0
        self._before = True

    @contextmanager
    def off(self) -> Iterator[None]:
        with self._lock:
            if self._users == 0:
                self._before = self._read()
                self._write(False)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._write(self._before)


def _write_cudnn(value: bool) -> None:
    torch._C._set_cudnn_enabled(value)


def _write_mkldnn(value: bool) -> None:
    torch._C._set_mkldnn_enabled(value)


# torch.backends.cudnn.enabled governs MIOpen too; its Python property is frozen inside torch's own test flags
# (torch.backends.disable_global_flags), the C functions are not.
_SWITCHES = {
    "cuda": _Switch(torch._C._get_cudnn_enabled, _write_cudnn),
    "cpu": _Switch(torch._C._get_mkldnn_enabled, _write_mkldnn),
}


def _unfilled() -> _Switch | None:
    """Return the switch of torch's filling of new memory, which torch < 2.2 does not do."""
    read = getattr(torch._C, "_get_deterministic_fill_uninitialized_memory", None)
    write = getattr(torch._C, "_set_deterministic_fill_uninitialized_memory", None)
    return None if read is None or write is None else _Switch(read, write)


_FILLING = _unfilled()


@contextmanager
def new_memory_unfilled() -> Iterator[None]:
    """Let new memory be as it is found.

    Under deterministic algorithms, Ultralytics' default, torch fills every new tensor with NaN so that reading it too
    early shows. Our algorithms write all they allocate, and would pay for one more pass over each workspace.
    """
    if _FILLING is None:
        yield
        return
    with _FILLING.off():
        yield


@contextmanager
def vendor_off(device: str = "cuda") -> Iterator[None]:
    """Switch off the vendor library of a device type: MIOpen or cuDNN for `cuda`, oneDNN for `cpu`.

    Nested and concurrent use counts; the value found by the first user returns with the last one, also after an error.
    """
    switch = _SWITCHES.get(device.partition(":")[0])
    if switch is None:
        yield
        return
    with switch.off():
        yield
