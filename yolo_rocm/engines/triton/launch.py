"""Launch kernel calls on tensors, quickly: the second launch of a call skips everything that Triton decides by itself.

Triton's own launch inspects each argument to find the kernel that was compiled for its kind: 100 microseconds on a fast
CPU for as many arguments as a convolution has. A call that is known by its key needs none of that, and an address that
comes as a number is not looked up again by the driver. Hooks of Triton's own profiler are not called. `direct` says
when that way is taken, with which versions of Triton, and what happens otherwise.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import torch

from ..bounded import Bounded
from ..device_state import STATE
from ..devices import on
from ..kernel_errors import CompilerError, Spills
from . import direct
from .available import gfx_target, interpreted
from .buffers import without_broken_buffers
from .call import Call

# NVIDIA's compiler spills a register or two to stay below a round number of them: such kernels were up to 2.6 times as
# fast as the next best on an H200. This many are no sign of a tile that is too large.
_FEW_SPILLS: Final = 8
_ready: dict[Hashable, Callable[..., bool]] = STATE.container(Bounded())  # see `repeating`
# What is compiled, or being compiled by some thread: Triton itself would compile the same kernel twice at once. Where
# that failed, why, in words: an exception would hold every frame it has passed, with the gigabytes of a measurement.
_prepared: dict[Hashable, tuple[type[RuntimeError], str] | None] = STATE.container({})
_lock = threading.Lock()
_address: Final = torch.Tensor.data_ptr


def launch(key: Hashable, call: Callable[[], Call], tensors: tuple[torch.Tensor, ...]) -> None:
    """Launch a call on the current stream of the tensors' device.

    Args:
        key: Everything the call was made from; None where it is not going to be launched again.
        call: Makes it, where it has not been launched before.
        tensors: The kernel's tensors, in order.
    """
    number = tensors[0].get_device()  # -1 on a CPU
    if number >= 0 and number != direct.current_device():
        with torch.cuda.device(number):  # Triton launches where torch is, not where tensors are
            launch(key, call, tensors)
        return
    ready = _ready.get(key)
    if ready is not None and ready(number, *map(_address, tensors)):
        return
    described = call()
    before = {} if interpreted() else direct.copies(described, tensors)
    with without_broken_buffers(_gfx(number)):
        compiled = kernel_of(described)[described.grid](*tensors, *described.numbers, **described.options)
    again = None if interpreted() else direct.direct(compiled, described, tensors, before)
    if again is not None and key is not None:
        _ready[key] = again


def _gfx(number: int) -> str:
    """Return the gfx target of a device, nothing for one that is not AMD's."""
    return gfx_target(f"cuda:{number}") if number >= 0 and torch.version.hip else ""


def repeating(key: Hashable) -> Callable[..., bool] | None:
    """Return a launch that was made before, as `direct` gives it; None where it is not ready to be repeated."""
    return _ready.get(key)


class Launch:
    """A launch that is made again and again: from the second time on there is nothing to look up."""

    __slots__ = ("_again", "_call", "_key")

    def __init__(self, key: Hashable, call: Call) -> None:
        """Take the call, and everything it was made from."""
        self._key, self._call = key, call
        self._again: Callable[..., bool] | None = None

    def __call__(self, *tensors: torch.Tensor) -> None:
        """Launch it on tensors, in the kernel's order."""
        again = self._again
        if again is not None and again(tensors[0].get_device(), *map(_address, tensors)):
            return
        launch(self._key, lambda: self._call, tensors)
        self._again = repeating(self._key)


def prepare(call: Call, dtypes: tuple[torch.dtype, ...], device: str) -> None:
    """Compile a call for a device without running it; return at once where another thread is compiling it.

    Args:
        call: The call.
        dtypes: Types of its tensors, in order.
        device: Where it is going to run.

    Raises:
        Spills: The kernel spills more than a few registers.
        CompilerError: It does not compile; raised again, without compiling, for the same call.
    """
    if interpreted():
        return
    with on(device):  # Triton compiles for where torch is
        number, kernel = torch.cuda.current_device(), kernel_of(call)
        key = (number, dtypes, direct.specialisation(kernel, call, len(dtypes)))
        with _lock:
            begun = key in _prepared
            failure = _prepared.setdefault(key, None)
        if not begun:
            try:
                with without_broken_buffers(_gfx(number)):
                    compiled = kernel.warmup(*dtypes, *call.numbers, grid=call.grid, **call.options)
                spills = direct.spills(compiled)
                if spills > _FEW_SPILLS:
                    failure = Spills, f"{call.kernel} spills {spills} registers with {call.options}"
            except Exception as error:  # a compiler may raise anything
                failure = CompilerError, f"{type(error).__name__}: {error}"
            _prepared[key] = failure
    if failure is not None:
        kind, text = failure
        raise kind(text)


def prepare_all(jobs: list[Callable[[], None]], workers: int, out_of_time: Callable[[], bool]) -> None:
    """Run jobs that compile in threads: most of a compilation happens outside of Python.

    Args:
        jobs: Each compiles something; one that fails is left to fail again where it is used.
        workers: How many at once.
        out_of_time: Returns whether to begin nothing more.
    """

    def work(job: Callable[[], None]) -> None:
        if out_of_time():
            return
        with suppress(Exception):  # a compiler may raise anything; the tuner meets it again and drops the candidate
            job()

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, jobs))


def kernel_of(call: Call) -> Any:
    """Return the kernel of a call; this imports Triton."""
    module = importlib.import_module(call.module)
    return getattr(module, call.kernel)
