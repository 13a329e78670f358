"""The seam: every convolution of the process passes through here while a patch is on.

`aten::convolution` and `aten::convolution_backward` get Python kernels at the dispatch key of a device type. Autograd,
autocast, `torch.compile` and `nn.Module` sit above that key and see an ordinary convolution; the native kernels below
it stay reachable. Modules are never touched, so checkpoints stay those of plain torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch

from ..engines import chunking
from ..errors import YoloRocmError
from ..utils.in_force import InForce
from ..utils.off_switch import enabled
from . import dispatcher
from .algorithms.base import add_bias
from .algorithms.native import native_convolution, native_convolution_backward
from .backend_flags import new_memory_unfilled
from .patch import DISPATCH_KEYS, Patch
from .plan import Plan, Planner
from .problem import ConvProblem
from .report import ConvReport
from .step_timer import StepTimer, mark

_patches: InForce[Patch] = InForce()
_lock = _patches.lock
_opened: list[ExitStack] = []  # by patch(), until unpatch()
_libraries: dict[str, Any] = {}
_kept: Counter[str] = Counter()  # device types whose kernels stay, see `kept`
# Read without the lock on every convolution: replaced as a whole, never changed in place.
_serving: dict[str, Patch] = {}
# True while patches of several threads are on; only then a convolution asks whose it is.
_crowded = False
_forwards: dict[int, Patch] = {}  # where a weight lies -> the patch that served its forward pass; only while crowded
_FORWARDS_KEPT: Final = 100_000


def active_devices() -> tuple[str, ...]:
    """Return the device types whose convolutions go through the seam now."""
    return tuple(_serving)


@contextmanager
def patched(
    devices: Sequence[str] = ("cuda",), engine: str = "auto", *, vendor: bool = False, memory_mb: int | None = None
) -> Iterator[ConvReport]:
    """Serve the convolutions of this process with `engine` while the context is open.

    Nested and concurrent use counts: a thread is served by the newest patch of its own, a thread without one by the
    newest of all. torch is as it was once the last one is closed, also after an error or Ctrl-C.

    Args:
        devices: Device types to serve; `cuda` covers AMD and NVIDIA GPUs, `cpu` runs the same code without a GPU.
        engine: `vendor`, `aten`, `gemm`, `triton`, several of these joined by `+`, or `auto`.
        vendor: Whether `auto` may use the vendor library, because the caller knows it to be healthy.
        memory_mb: Workspace in MiB that a convolution may take beside its result.

    Yields:
        The report of what was served, filled as it happens.
    """
    patch = Patch(devices, Planner(engine, vendor, memory_mb))
    with installed(patch):
        yield patch.report


@contextmanager
def installed(patch: Patch) -> Iterator[None]:
    """Serve with a patch made before, which keeps its plans and its report from one time to the next."""
    if not enabled():
        yield
        return
    with new_memory_unfilled():
        _add(patch)
        try:
            yield
        finally:
            _remove(patch)


@contextmanager
def kept(devices: Sequence[str]) -> Iterator[None]:
    """Leave the kernels with the dispatcher while the context is open, for patches that come and go in it.

    While no patch is on, they pass calls on to the native kernels: results, and `active_devices()`, are torch's own.
    """
    with _lock:
        _kept.update(devices)
    try:
        yield
    finally:
        with _lock:
            _kept.subtract(devices)
            _install()


def patch(
    devices: Sequence[str] = ("cuda",), engine: str = "auto", *, vendor: bool = False, memory_mb: int | None = None
) -> ConvReport:
    """Like `patched`, without a block: stays on until `unpatch()` is called as often as `patch()` was."""
    with ExitStack() as stack:
        report = stack.enter_context(patched(devices, engine, vendor=vendor, memory_mb=memory_mb))
        with _lock:
            _opened.append(stack.pop_all())
    return report


def unpatch() -> None:
    """Undo the newest `patch()`.

    Raises:
        YoloRocmError: There is none.
    """
    with _lock:
        if not _opened:
            raise YoloRocmError("unpatch() without a patch(): nothing of this process is patched by patch().")
        _opened.pop().close()


def settle() -> None:
    """Take out kernels that had to stay when the last patch ended, if they need not any more (see `kernels`)."""
    with _lock:
        _install()


def _add(patch: Patch) -> None:
    with _lock:
        _patches.add(patch)
        try:
            _install()
        except BaseException:
            _patches.remove(patch)
            _install()
            raise


def _remove(patch: Patch) -> None:
    with _lock:
        _patches.remove(patch)
        _install()


def _install() -> None:
    """Make the kernels of the dispatcher agree with the list of patches."""
    global _serving, _crowded
    serving = {device: patch for patch in _patches.items() for device in patch.devices}
    for device in set(serving) - set(_libraries):
        _libraries[device] = dispatcher.put_in(DISPATCH_KEYS[device], _kernels())
    _serving = serving
    _crowded = _patches.of_several_threads()
    if not _crowded:
        _forwards.clear()
    for device in set(_libraries) - set(serving) - set(+_kept):
        if dispatcher.take_out(_libraries[device], DISPATCH_KEYS[device], _kernels()):
            del _libraries[device]  # otherwise it passes calls on to the native kernels; see `settle`


def _kernels() -> dict[str, Callable[..., Any]]:
    return {"convolution": _convolution, "convolution_backward": _convolution_backward}


def _choose(device: str, weight: torch.Tensor, backward: bool = False) -> Patch | None:
    """Return the patch for a convolution of this thread; None where the native kernel has to answer.

    A thread that has patched is served by its own patches alone. Others (helpers of a run, or code that knows nothing
    of us) by the newest of all. On a GPU, autograd runs the backward pass in a thread that belongs to nobody: there the
    patch that served the forward pass is the one, or the oldest, if forward ran before there was a choice.
    """
    if dispatcher.GUESTS_COUNT and not backward and not _patches.own():
        dispatcher.note_guest()
    if not _crowded:
        return _serving.get(device)
    mine = _patches.own()
    fitting = [patch for patch in mine or _patches.items() if device in patch.devices]
    if not fitting:
        return None
    if backward:
        return fitting[-1] if mine else _forwards.get(weight.data_ptr(), fitting[0])
    if len(_forwards) > _FORWARDS_KEPT:
        _forwards.clear()
    _forwards[weight.data_ptr()] = fitting[-1]
    return fitting[-1]


def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    geometry = (stride, padding, dilation, transposed, output_padding, groups)
    patch = _choose("cuda" if x.is_cuda else x.device.type, weight)
    route = None if patch is None else patch.lookup(x, weight, geometry)
    if patch is None or route is None:
        return native_convolution(x, weight, bias, *geometry)
    problem, plan = route.problem, route.plan
    layer = patch.report.count_forward(route.served)
    timer = patch.report.timer
    began = None if timer is None else mark(x.device)
    if route.empty:
        y = torch.zeros(problem.output_shape, dtype=x.dtype, device=x.device)
        y = add_bias(y, bias)
    else:
        y = chunking.forward(plan.forward.algorithm, problem, x, weight, bias, patch.planner.budget, route.whole[0])
    y = _as_native_lays_out(y, problem.channels_last)
    if timer is not None:
        timer.add(problem, "forward", layer, began, x.device)
    return y


def _convolution_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    geometry = (stride, padding, dilation, transposed, output_padding, groups)
    patch = _choose("cuda" if x.is_cuda else x.device.type, weight, backward=True)
    route = None if patch is None else patch.lookup(x, weight, geometry)
    if patch is None or route is None:
        return native_convolution_backward(grad, x, weight, bias_sizes, *geometry, mask)
    problem, plan = route.problem, route.plan
    route.served.backward_calls += 1
    grad_bias = grad.sum([0, *range(2, grad.dim())]) if mask[2] else None
    if route.empty:
        return (
            torch.zeros_like(x) if mask[0] else None,
            torch.zeros_like(weight) if mask[1] else None,
            grad_bias,
        )
    for_input, for_weight, budget = plan.grad_input.algorithm, plan.grad_weight.algorithm, patch.planner.budget
    if patch.report.timer is not None:
        return *_timed_backward(patch.report.timer, problem, plan, grad, x, weight, mask, budget), grad_bias
    if for_input is for_weight:
        both = (mask[0], mask[1])
        grad_input, grad_weight = chunking.backward(for_input, problem, grad, x, weight, both, budget, route.whole[1])
    else:
        _, whole_input, whole_weight = route.whole
        grad_input = grad_weight = None
        if mask[1]:  # first: see `Algorithm.backward`
            grad_weight = chunking.backward(for_weight, problem, grad, x, weight, (False, True), budget, whole_weight)[
                1
            ]
        if mask[0]:
            grad_input = chunking.backward(for_input, problem, grad, x, weight, (True, False), budget, whole_input)[0]
    if grad_input is not None:
        grad_input = _as_native_lays_out(grad_input, problem.channels_last)
    if grad_weight is not None:
        grad_weight = _as_native_lays_out(grad_weight, problem.channels_last)
    return grad_input, grad_weight, grad_bias


def _timed_backward(
    timer: StepTimer,
    problem: ConvProblem,
    plan: Plan,
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mask: Sequence[bool],
    budget: int,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Compute one gradient after the other, each with its time, also where one algorithm serves both.

    The result is the same to the last bit: nothing is shared between the two gradients inside the algorithms, nor in
    the native kernels, which take them by separate calls of the vendor library. The gradient of a bias is not timed.
    """
    found: list[torch.Tensor | None] = [None, None]
    for index, which, choice in ((1, "grad_weight", plan.grad_weight), (0, "grad_input", plan.grad_input)):
        if mask[index]:
            began = mark(x.device)
            wanted = (index == 0, index == 1)
            part = chunking.backward(choice.algorithm, problem, grad, x, weight, wanted, budget)[index]
            found[index] = None if part is None else _as_native_lays_out(part, problem.channels_last)
            timer.add(problem, which, None, began, x.device)
    return found[0], found[1]


def _as_native_lays_out(y: torch.Tensor, channels_last: bool) -> torch.Tensor:
    if not channels_last or y.dim() not in (4, 5):
        return y.contiguous()
    return y.contiguous(memory_format=torch.channels_last if y.dim() == 4 else torch.channels_last_3d)
