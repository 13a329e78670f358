"""Everything of Triton that no document promises, with its versions and its fallbacks.

The direct launch is Triton's inner call, without what its own launch does before. It has to prove itself: it is used
with versions of Triton whose source makes the very call (`OLDEST` to `NEWEST`), and the first time that a kernel is
launched, the result of Triton's own launch is compared with what this one gives for the same tensors, bit by bit (for
copies of those that the kernel changes in place). On a newer or older version, a missing attribute, another result or
an error, then or later, the process launches through Triton's own, documented way; all but the version are logged once.
Names used: `run`, `function`, `packed_metadata`; of `run`, in the version whose source was read, what it calls itself.

Spills and what a kernel is specialised for are read where this version of Triton has them (`_init_handles`,
`n_spills`, `params`), and are left out where it has not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import reduce
from operator import or_
from typing import Any, Final

import torch

from ...utils.log_lines import log
from .. import devices
from ..device_state import STATE
from .available import triton_version
from .call import Call

# From the first on, a compiled kernel takes constants among its arguments, in order. 3.6 was run; the others were read.
OLDEST, NEWEST = (3, 3), (3, 9)
READ: Final = (3, 6)  # what `run` does
_LARGEST_COMPARED: Final = 2**26  # bytes: a result is copied for the comparison, and smaller ones come first
_BITS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# None where torch was built without GPUs: then nothing is ever repeated.
current_device: Final[Any] = devices.current_device
current_stream: Final[Any] = devices.current_stream
_proven: set[tuple[str, str]] = STATE.container(set())
_given_up: set[str] = STATE.container(set())  # why all launches go through Triton's own way, where they do


def copies(call: Call, tensors: tuple[torch.Tensor, ...]) -> dict[int, torch.Tensor]:
    """Return copies of the tensors that a launch is about to change, by place, where it has yet to prove itself."""
    proven = (call.module, call.kernel) in _proven
    return {} if proven else {place: tensors[place].clone() for place in call.updated}


def direct(
    compiled: Any, call: Call, tensors: tuple[torch.Tensor, ...], before: dict[int, torch.Tensor]
) -> Callable[..., bool] | None:
    """Return a launch that was just made as a function of the device's number and its tensors' addresses.

    Args:
        compiled: What Triton has launched.
        call: The launch.
        tensors: Its tensors; the last one is its result, whole.
        before: What `copies` returned before.

    Returns:
        A function that returns False, and launches nothing, where torch is on another device, where an address is not
        a multiple of 16, as torch allocates and kernels are compiled for, or where it has failed. None where the call
        has to be made through Triton.
    """
    aligned = reduce(or_, (tensor.data_ptr() for tensor in tensors)) % 16 == 0
    if _given_up or not OLDEST <= triton_version() <= NEWEST or not aligned:
        return None
    try:
        again = _repeated(compiled, call)
    except AttributeError as error:
        _give_up(f"a compiled kernel is not what it was: {error}")
        return None
    if (call.module, call.kernel) not in _proven:
        if not _comparable(tensors[-1]):
            return None
        if _agrees(again, tensors, before):
            _proven.add((call.module, call.kernel))
    return None if _given_up else again


def _repeated(compiled: Any, call: Call) -> Callable[..., bool]:
    launch, before, after = _inner(compiled, call)
    rest = (*call.numbers, *call.constants.values())

    def again(number: int, *addresses: int, of: Any = compiled) -> bool:  # which unloads its code when it is freed
        if _given_up or reduce(or_, addresses) % 16 or number != current_device():
            return False
        try:
            launch(*before, current_stream(number), *after, *addresses, *rest)
        except Exception as error:  # anything: Triton's own launch is next, and raises what is the matter
            _give_up(f"{type(error).__name__}: {error}")
            return False
        return True

    return again


def _inner(compiled: Any, call: Call) -> tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]:
    """Return what launches a kernel, and its arguments before and after the stream.

    `run` makes memory that some kernels want, and calls `launch`: where none is wanted, there is nothing else to it.
    """
    run = compiled.run
    no_hooks = (None, None, None)  # the argument of hooks, and the hooks before and after a launch
    kernel = (compiled.packed_metadata, *no_hooks)
    wanted = (getattr(run, "global_scratch_size", 0), getattr(run, "profile_scratch_size", None))
    if triton_version() == READ and wanted == (0, 0):
        cooperative = run.launch_cooperative_grid
        if hasattr(run, "launch_pdl"):  # NVIDIA's
            return run.launch, call.grid, (compiled.function, cooperative, run.launch_pdl, None, None, *kernel)
        return run.launch, (cooperative, *call.grid), (compiled.function, None, *kernel)
    return run, call.grid, (compiled.function, *kernel)


def _comparable(result: torch.Tensor) -> bool:
    """Return whether a result can be compared now: not while work is recorded into a graph, nor a very large one."""
    capturing = result.is_cuda and torch.cuda.is_current_stream_capturing()
    return not capturing and result.numel() * result.element_size() <= _LARGEST_COMPARED


def _agrees(again: Callable[..., bool], tensors: tuple[torch.Tensor, ...], before: dict[int, torch.Tensor]) -> bool:
    """Return whether a launch writes what Triton's own has just written; afterwards that is there in any case."""
    result = tensors[-1]
    expected = result.clone()
    result.view(_BITS[result.element_size()]).fill_(-1)  # all bits: NaN, where it is of floating point
    given = [before.get(place, tensor) for place, tensor in enumerate(tensors)]
    launched = again(result.get_device(), *(tensor.data_ptr() for tensor in given))
    if launched and _same(result, expected) and all(_same(tensors[place], copy) for place, copy in before.items()):
        return True
    result.copy_(expected)
    _give_up("it gives other numbers than Triton's own launch")
    return False


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same bits."""
    kind = _BITS[one.element_size()]
    return torch.equal(one.view(kind), other.view(kind))


def _give_up(why: str) -> None:
    if not _given_up:
        _given_up.add(why)
        version = ".".join(map(str, triton_version()))
        log(
            "triton.slower_launch",
            "kernels are launched through Triton %s's own, slower way from now on: %s",
            version,
            why,
        )


def spills(compiled: Any) -> int:
    """Load a compiled kernel onto the current device and return the registers it spills, 0 where Triton says none."""
    load = getattr(compiled, "_init_handles", None)
    if load is not None:
        load()
    return int(getattr(compiled, "n_spills", 0) or 0)


def specialisation(kernel: Any, call: Call, tensors: int) -> Hashable:
    """Return what Triton compiles a kernel of its own for: constants, and numbers that are 1 or multiples of 16."""
    parameters = getattr(kernel, "params", None)
    fixed = [p.do_not_specialize for p in parameters[tensors:]] if parameters else [False] * len(call.numbers)
    pairs = zip(call.numbers, fixed, strict=False)  # constants come after the numbers
    kinds = tuple("" if never else "1" if n == 1 else "16" if n % 16 == 0 else "" for n, never in pairs)
    return call.module, call.kernel, kinds, tuple(call.constants.items()), call.warps, call.stages
