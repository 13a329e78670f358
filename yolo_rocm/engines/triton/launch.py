"""Launch kernel calls on tensors, quickly: the second launch of a call skips everything that Triton decides by itself.

Triton's own launch looks at each argument to find the kernel that was compiled for its kind: 100 microseconds on a fast
CPU for as many arguments as a convolution has. A call that is known by its problem and strides needs none of that, and
an address that comes as a number is not looked up again by the driver. Hooks of Triton's own profiler are not called.
See `direct` for when that way is taken.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import torch

from ...conv.kernels.calls import Call
from ..devices import on
from . import direct
from .available import interpreted

# NVIDIA's compiler puts a value or two aside to stay below a round number of registers: such kernels were up to 2.6
# times as fast as the next best on an H200. This many are no sign of a tile that is too large.
_FEW_SPILLS: Final = 8
_ready: dict[Hashable, Callable[..., bool]] = {}  # see `repeating`
# What is compiled, or being compiled by some thread: Triton itself would compile the same kernel twice at once. Where
# that failed, why, in words: an exception would hold every frame it has passed, with the gigabytes of a measurement.
_prepared: dict[Hashable, _Failure | None] = {}
_lock = threading.Lock()


class Spills(RuntimeError):
    """A kernel needs more registers than there are: slower than another tile, and not worth timing."""


class CompilerError(RuntimeError):
    """A kernel could not be compiled, or does not fit the device."""


@dataclass(frozen=True)
class _Failure:
    kind: type[RuntimeError]
    text: str


def launch(key: Hashable, call: Callable[[], Call], tensors: tuple[torch.Tensor, ...]) -> None:
    """Launch a call on the current stream of the tensors' device.

    Args:
        key: Everything the call was made from.
        call: Makes it, where it has not been launched before.
        tensors: The kernel's tensors, in order.
    """
    number = tensors[0].get_device()  # -1 on a CPU
    if number >= 0 and number != direct.current_device():
        with torch.cuda.device(number):  # Triton launches where torch is, not where tensors are
            _launch(key, call, tensors)
    else:
        _launch(key, call, tensors)


def _launch(key: Hashable, call: Callable[[], Call], tensors: tuple[torch.Tensor, ...]) -> None:
    addresses = [tensor.data_ptr() for tensor in tensors]
    ready = _ready.get(key)
    if ready is not None and ready(tensors[0].get_device(), *addresses):
        return
    described = call()
    compiled = kernel_of(described)[described.grid](*tensors, *described.numbers, **_options(described))
    again = None if interpreted() else direct.direct(compiled, described, tensors)
    if again is not None:
        _ready[key] = again


def repeating(key: Hashable) -> Callable[..., bool] | None:
    """Return a launch that was made before, as `direct` gives it; None where it is not ready to be repeated."""
    return _ready.get(key)


def prepare(call: Call, dtypes: tuple[torch.dtype, ...], device: str) -> None:
    """Compile a call for a device without running it; at once where another thread is already about it.

    Args:
        call: The call.
        dtypes: Types of its tensors, in order.
        device: Where it is going to run.

    Raises:
        Spills: The kernel spills more than a few registers.
        CompilerError: It does not compile; again without compiling, where the same is asked for again.
    """
    if interpreted():
        return
    with on(device):  # Triton compiles for where torch is
        _prepare(call, dtypes)


def _prepare(call: Call, dtypes: tuple[torch.dtype, ...]) -> None:
    kernel = kernel_of(call)
    key = (torch.cuda.current_device(), dtypes, _kind(kernel, call, len(dtypes)))
    with _lock:
        begun = key in _prepared
        failed = _prepared.setdefault(key, None)
    if not begun:
        try:
            compiled = kernel.warmup(*dtypes, *call.numbers, grid=call.grid, **_options(call))
            compiled._init_handles()
            if getattr(compiled, "n_spills", 0) > _FEW_SPILLS:
                text = f"{call.kernel} spills {compiled.n_spills} registers with {_options(call)}"
                _prepared[key] = failed = _Failure(Spills, text)
        except Exception as error:  # a compiler may raise anything
            failed = _Failure(CompilerError, f"{type(error).__name__}: {error}")
            _prepared[key] = failed
            raise CompilerError(failed.text) from error
    if failed is not None:
        raise failed.kind(failed.text)


def _kind(kernel: Any, call: Call, tensors: int) -> Hashable:
    """Return what Triton compiles a kernel of its own for: constants, and numbers that are 1 or multiples of 16."""
    free = zip(kernel.params[tensors:], call.numbers, strict=False)
    numbers = tuple("" if p.do_not_specialize else "1" if n == 1 else "16" if n % 16 == 0 else "" for p, n in free)
    return call.module, call.kernel, numbers, tuple(call.constants.items()), call.warps, call.stages


def prepare_all(jobs: list[Callable[[], None]], workers: int, out_of_time: Callable[[], bool]) -> None:
    """Run jobs that compile, side by side: most of a compilation happens outside of Python.

    Args:
        jobs: Each compiles something; one that fails is left to fail again where it is used.
        workers: How many at once.
        out_of_time: Tells when to begin nothing more.
    """

    def work(job: Callable[[], None]) -> None:
        if out_of_time():
            return
        with suppress(Exception):  # a compiler may raise anything; the tuner meets it again and drops the candidate
            job()

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, jobs))


def forget() -> None:
    """Forget prepared launches."""
    direct.forget()
    _ready.clear()
    _prepared.clear()


def kernel_of(call: Call) -> Any:
    """Return the kernel of a call; this imports Triton."""
    module = importlib.import_module(call.module)
    return getattr(module, call.kernel)


def _options(call: Call) -> dict[str, Any]:
    return {**call.constants, "num_warps": call.warps, "num_stages": call.stages}
