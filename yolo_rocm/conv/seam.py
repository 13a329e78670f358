"""The seam: every convolution of the process passes through here while a patch is on.

`aten::convolution` and `aten::convolution_backward` get Python kernels at the dispatch key of a device type. Autograd,
autocast, `torch.compile` and `nn.Module` sit above that key and see an ordinary convolution; the native kernels below
it stay reachable. Modules are never touched, so checkpoints stay those of plain torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ..engines import dispatcher
from ..engines.names import Pass
from ..engines.seam import Seam
from ..errors import YoloRocmError
from .base import Grads
from .compiling import Compiling
from .inference import serving as serving_inference
from .native import native_convolution, native_convolution_backward
from .patch import Patch, Route
from .plan import Planner
from .problem import ConvProblem, laid_out, results_channels_last
from .report import ConvReport
from .step_timer import StepTimer, mark

_opened: list[ExitStack] = []  # by patch(), until unpatch()


def active_devices() -> tuple[str, ...]:
    """Return the device types whose convolutions a patch decides for now."""
    return tuple(_seam.serving)


def serving(device_type: str) -> Patch | None:
    """Return the patch that decides for a device type now."""
    return _seam.serving.get(device_type)


@contextmanager
def patched(
    devices: Sequence[str] = ("cuda",), engine: str = "auto", *, vendor: bool = False, memory_mb: int | None = None
) -> Iterator[ConvReport]:
    """Compute the convolutions of this process with `engine` while the context is open.

    One patch decides for all threads: the newest that covers the device type. Nested and concurrent use counts, patches
    may end in any order, and torch is as it was once the last one has ended, also after an error or Ctrl-C.

    Args:
        devices: Device types to cover; `cuda` means AMD and NVIDIA GPUs, `cpu` runs the same code without a GPU.
        engine: `vendor`, `aten`, `gemm`, `triton`, `hip`, several of these joined by `+`, or `auto`.
        vendor: Whether `auto` may use the vendor library, because the caller knows it to be healthy.
        memory_mb: Workspace in MiB that a convolution may take in addition to its result.

    Yields:
        The report of what was computed how, filled as it happens.
    """
    patch = Patch(devices, Planner(engine, vendor, memory_mb))
    with installed(patch):
        yield patch.report


@contextmanager
def installed(patch: Patch) -> Iterator[None]:
    """Put a patch on that was made before, which keeps its plans and its report from one time to the next."""
    with _seam.installed(patch):
        yield


def patch(
    devices: Sequence[str] = ("cuda",), engine: str = "auto", *, vendor: bool = False, memory_mb: int | None = None
) -> ConvReport:
    """Like `patched`, without a block: stays on until `unpatch()` is called as often as `patch()` was."""
    with ExitStack() as stack:
        report = stack.enter_context(patched(devices, engine, vendor=vendor, memory_mb=memory_mb))
        with _seam.lock:
            _opened.append(stack.pop_all())
    return report


def unpatch() -> None:
    """Undo the newest `patch()`.

    Raises:
        YoloRocmError: There is none.
    """
    with _seam.lock:
        if not _opened:
            raise YoloRocmError("unpatch() without a patch(): nothing of this process is patched by patch().")
        _opened.pop().close()


# Both get stride, padding, dilation, transposed, output padding and groups as `geometry`; torch passes no keywords.
def _kernels(key: str) -> Mapping[str, Callable[..., Any]]:
    return {"convolution": _convolution, "convolution_backward": _convolution_backward}


def _engines() -> dict[str, str]:
    """Return what computes on each device type whose convolutions pass through here."""
    serving = _seam.serving
    return {d: "+".join(serving[d].planner.engines) if d in serving else "torch" for d in list(_seam.libraries)}


_compiling = Compiling(_engines)
_seam: Seam[Patch] = Seam(_kernels, _compiling.settle)


def _convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: Any) -> torch.Tensor:
    if not dispatcher.HANDS_OUT:
        dispatcher.note_caller()
    device = "cuda" if x.is_cuda else x.device.type
    patch = _seam.serving.get(device)
    if patch is None:
        return _as_promised(native_convolution(x, weight, bias, *geometry), x, weight)
    inference = serving_inference(device)
    if inference is not None and not patch.report.is_watching:
        y = inference.convolution(x, weight, bias, geometry, patch.report)
        if y is not None:
            return y
    route = patch.lookup(x, weight, geometry)
    if route is None or not (bias is None or _fits(bias, x, route.problem)):
        return native_convolution(x, weight, bias, *geometry)  # which says what is wrong with a bias
    report, problem = patch.report, route.problem
    layer, timer = report.count_forward(route.served), report.timer
    if timer is not None and _is_recorded(x):
        timer = None
    began = None if timer is None else mark(x.device)
    y = laid_out(route.forward(x, weight, bias), problem.channels_last)
    if timer is not None:
        timer.add(problem, Pass.FORWARD, layer, began, x.device)
    return y


def _convolution_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias_sizes: Sequence[int] | None, *rest: Any
) -> tuple[torch.Tensor | None, ...]:
    geometry, mask = rest[:-1], rest[-1]
    patch = _seam.serving.get("cuda" if x.is_cuda else x.device.type)
    route = None if patch is None else patch.lookup(x, weight, geometry)
    if patch is None or route is None:
        grads = native_convolution_backward(grad, x, weight, bias_sizes, *geometry, mask)
        if patch is not None:
            return grads
        return (*(None if each is None else _as_promised(each, x, weight) for each in grads[:2]), grads[2])
    route.served.backward_calls += 1
    timer, channels_last = patch.report.timer, route.problem.channels_last
    grad_bias = grad.sum([0, *range(2, grad.dim())]) if mask[2] else None
    if timer is None or _is_recorded(x):
        for_input, for_weight = route.backward(grad, x, weight, (mask[0], mask[1]))
    else:
        for_input, for_weight = _timed_backward(timer, route, grad, x, weight, mask)
    return (
        None if for_input is None else laid_out(for_input, channels_last),
        None if for_weight is None else laid_out(for_weight, channels_last),
        grad_bias,
    )


def _as_promised(result: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Lay out a result of torch's own between two runs: what was compiled in one of them may read it."""
    if 0 in x.shape or torch._C._get_tracing_state() is not None:
        return result
    return laid_out(result, results_channels_last(x, weight))


def _fits(bias: torch.Tensor, x: torch.Tensor, problem: ConvProblem) -> bool:
    return bias.shape == (problem.out_channels,) and bias.dtype == x.dtype and bias.device == x.device


def _is_recorded(x: torch.Tensor) -> bool:
    """Return whether a device graph is recorded now: the events in it cannot be read."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _timed_backward(
    timer: StepTimer, route: Route, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mask: Sequence[bool]
) -> Grads:
    """Compute one gradient after the other, each with its time, also where one algorithm computes both.

    The result is the same to the last bit: nothing is shared between the two gradients inside the algorithms, nor in
    the native kernels, which take them by separate calls of the vendor library. The gradient of a bias is not timed.
    """
    found: list[torch.Tensor | None] = [None, None]
    for index, which in ((1, Pass.GRAD_WEIGHT), (0, Pass.GRAD_INPUT)):
        if mask[index]:
            began = mark(x.device)
            part = route.backward(grad, x, weight, (index == 0, index == 1))[index]
            found[index] = None if part is None else laid_out(part, route.problem.channels_last)
            timer.add(route.problem, which, None, began, x.device)
    return found[0], found[1]
