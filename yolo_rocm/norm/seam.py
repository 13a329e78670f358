"""The seam: every BatchNorm of the process passes through here while a patch is on.

`aten::native_batch_norm`, the vendor libraries' own operators and their backward get Python kernels at the dispatch key
of a device type. They save for backward what torch's kernels save, so that a graph may have its forward pass on one
side of a patch's end and its backward pass on the other. Autograd and `nn.Module` sit above and see an ordinary
BatchNorm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from ..engines import dispatcher
from ..engines.device_state import STATE
from ..engines.seam import Seam
from .base import Parameters, Statistics
from .native import Three, native_batch_norm, native_batch_norm_backward, reserve_for, saved_dtype
from .patch import NormPatch, NormRoute
from .plan import NormPlanner
from .pytorch import running
from .report import NormReport

Saved = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def active_devices() -> tuple[str, ...]:
    """Return the device types whose normalisations go through the seam now."""
    return tuple(_seam.serving)


def serving(device_type: str) -> NormPatch | None:
    """Return the patch that decides for a device type now."""
    return _seam.serving.get(device_type)


@contextmanager
def patched(
    devices: Sequence[str] = ("cuda",), engine: str = "auto", *, vendor: bool = False, memory_mb: int | None = None
) -> Iterator[NormReport]:
    """Compute the normalisations of this process with `engine` while the context is open.

    Args:
        devices: Device types to cover; `cuda` means AMD and NVIDIA GPUs, `cpu` runs the same code without a GPU.
        engine: `vendor`, `aten`, `gemm`, `triton`, `hip`, several of these joined by `+`, or `auto`.
        vendor: Whether `auto` may use the vendor library, because the caller knows it to be healthy.
        memory_mb: Workspace in MiB that a normalisation may take in addition to its result.

    Yields:
        The report of what was computed how, filled as it happens.
    """
    patch = NormPatch(devices, NormPlanner(engine, vendor, memory_mb))
    with installed(patch):
        yield patch.report


def installed(patch: NormPatch) -> AbstractContextManager[None]:
    """Put a patch on that was made before, which keeps its plans and its report from one time to the next.

    Nothing happens where it asks for torch's own kernels alone, and torch gives no way to them below a seam.
    """
    return _seam.installed(patch) if patch.reachable else nullcontext()


@STATE.cached(4)
def _kernels(key: str) -> Mapping[str, Callable[..., Any]]:
    kernels: dict[str, Callable[..., Any]] = {
        "native_batch_norm": _native,
        "native_batch_norm_backward": _native_backward,
        "_native_batch_norm_legit": _native_legit,
        "_native_batch_norm_legit.no_stats": _native_no_stats,
    }
    if key == "CUDA":
        kernels["cudnn_batch_norm"], kernels["cudnn_batch_norm_backward"] = _cudnn, _cudnn_backward
        kernels["miopen_batch_norm"], kernels["miopen_batch_norm_backward"] = _miopen, _miopen_backward
    if dispatcher.HANDS_OUT:  # otherwise they are the way to what is hidden
        kernels["_batch_norm_with_update"], kernels["batch_norm_backward"] = _with_update, _update_backward
    return {name: kernel for name, kernel in kernels.items() if hasattr(torch.ops.aten, name.partition(".")[0])}


_seam: Seam[NormPatch] = Seam(_kernels)


def _forward(operator: str, x: torch.Tensor, *arguments: Any) -> tuple[Any, Statistics | None]:
    """Compute a forward pass.

    Args:
        operator: Which was called.
        x: The input.
        arguments: Weight, bias, running mean and variance, whether the batch's statistics count, momentum, epsilon.

    Returns:
        The activation and its statistics; or all that the operator returns, and None, where torch's own computed it.
    """
    if not dispatcher.HANDS_OUT:
        dispatcher.note_caller()
    weight, bias, mean, var, training, momentum, eps = arguments
    patch = _seam.serving.get("cuda" if x.is_cuda else x.device.type)
    call = None if patch is None else patch.lookup(x, weight, bias, mean, var, training)
    if patch is None or call is None:
        return _own(operator, x, arguments), None
    route = call.route
    patch.report.count_forward(route.served)
    if route.engines[0] == "vendor":
        return _own(operator, x, arguments), None
    if (weight is None) != (bias is None):
        weight, bias = _filled(weight, bias)
    used = x if call.contiguous else call.laid_out(x)
    p = Parameters(weight, bias, mean, var, momentum, eps)
    y, statistics = route.forward(used, p) if call.dense else _without_gaps(route, used, p)
    return call.result(y, x), statistics


def _without_gaps(route: NormRoute, x: torch.Tensor, p: Parameters) -> tuple[torch.Tensor, Statistics]:
    """Compute a forward pass from copies of parameters and running statistics, and put back what it has updated."""
    weight, bias, mean, var = (_dense(each) for each in p[:4])
    result = route.forward(x, p._replace(weight=weight, bias=bias, running_mean=mean, running_var=var))
    if route.problem.training:
        for own, updated in ((p.running_mean, mean), (p.running_var, var)):
            if own is not None and updated is not None and own is not updated:
                own.copy_(updated)
    return result


def _dense(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _own(operator: str, x: torch.Tensor, arguments: tuple[Any, ...]) -> Any:
    """Call torch's own kernel of an operator; that of `native_batch_norm` where torch does not hand it out."""
    key = "CUDA" if x.is_cuda else "CPU"
    below = dispatcher.below(operator, key)
    if below is not None:
        return below(x, *_arguments(operator, arguments))
    y, mean, invstd = native_batch_norm(x, *arguments)
    if operator.startswith(("cudnn", "miopen")) and not arguments[4]:
        mean, invstd = _nothing(x, arguments[0]), _nothing(x, arguments[0])
    reserve = (reserve_for(x) if arguments[4] else _no_reserve(x),) if operator.startswith("cudnn") else ()
    return y, mean, invstd, *reserve


def _arguments(operator: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments that an operator takes after its input."""
    if operator.endswith("no_stats"):
        return *arguments[:2], *arguments[4:]
    return (*arguments[:4], *arguments[5:]) if operator == "_batch_norm_with_update" else arguments


def _in(dtype: torch.dtype, statistics: Statistics) -> Statistics:
    """Return statistics in a data type, which they nearly always have."""
    if statistics.mean.dtype == dtype == statistics.invstd.dtype:
        return statistics
    return Statistics(statistics.mean.to(dtype), statistics.invstd.to(dtype))


def _filled(weight: Any, bias: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weight and bias where there is but one of them."""
    like = bias if weight is None else weight
    return (torch.ones_like(like) if weight is None else weight, torch.zeros_like(like) if bias is None else bias)


def _nothing(x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    return torch.empty(0, dtype=x.dtype if weight is None else weight.dtype, device=x.device)


def _no_reserve(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=x.device)


def _native(x: torch.Tensor, *arguments: Any, operator: str = "native_batch_norm") -> Saved:
    y, statistics = _forward(operator, x, *arguments)
    if statistics is None:
        y, mean, invstd = y
        return y, mean, invstd
    weight, bias, mean, var, training, _, _ = arguments
    if training or x.is_cuda:
        kept = _in(saved_dtype(x, weight, bias, mean, var), statistics)
        # In eval mode the mean may be the running one itself, which no result may share memory with.
        return y, kept.mean if training else kept.mean.clone(), kept.invstd
    empty = torch.empty(0, dtype=saved_dtype(x, weight, bias, mean, var), device=x.device)
    return y, empty, empty.clone()


def _native_legit(x: torch.Tensor, *arguments: Any) -> Saved:
    return _native(x, *arguments, operator="_native_batch_norm_legit")


def _native_no_stats(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, training: bool, *rest: float
) -> Saved:
    return _native(x, weight, bias, None, None, training, *rest, operator="_native_batch_norm_legit.no_stats")


def _with_update(
    x: torch.Tensor, weight: Any, bias: Any, mean: torch.Tensor, var: torch.Tensor, momentum: float, eps: float
) -> tuple[torch.Tensor, ...]:
    y, statistics = _forward("_batch_norm_with_update", x, weight, bias, mean, var, True, momentum, eps)
    if statistics is None:
        return tuple(y)
    kept = _in(saved_dtype(x, weight, bias, mean, var), statistics)
    return y, *kept, reserve_for(x) if x.is_cuda else _no_reserve(x)


def _cudnn(x: torch.Tensor, weight: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, ...]:
    y, statistics = _forward("cudnn_batch_norm", x, weight, *arguments)
    if statistics is None:
        return tuple(y)
    if not arguments[3]:
        return y, _nothing(x, weight), _nothing(x, weight), _no_reserve(x)
    return y, *statistics, reserve_for(x)


def _miopen(x: torch.Tensor, weight: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, ...]:
    y, statistics = _forward("miopen_batch_norm", x, weight, *arguments)
    if statistics is None:
        return tuple(y)
    return (y, *statistics) if arguments[3] else (y, _nothing(x, weight), _nothing(x, weight))


def _native_backward(*arguments: Any) -> Three:
    return _backward(None, *arguments)


def _cudnn_backward(x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor, *saved: Any) -> Three:
    *rest, eps, reserve = saved
    below = dispatcher.below("cudnn_batch_norm_backward", "CUDA")
    own = None if below is None else partial(below, x, grad, weight, *rest, eps, reserve)
    return _backward(own, grad, x, weight, *rest, True, eps, (True, True, True))


def _miopen_backward(x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor, *saved: Any) -> Three:
    *rest, eps = saved
    below = dispatcher.below("miopen_batch_norm_backward", "CUDA")
    own = None if below is None else partial(below, x, grad, weight, *rest, eps)
    return _backward(own, grad, x, weight, *rest, True, eps, (True, True, True))


def _update_backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, *saved: Any) -> Three:
    *rest, reserve = saved
    below = dispatcher.below("batch_norm_backward", "CUDA" if x.is_cuda else "CPU")
    own = None if below is None else partial(below, grad, x, weight, *rest, reserve)
    return _backward(own, grad, x, weight, *rest)


def _backward(own: Callable[[], Any] | None, grad: torch.Tensor, x: torch.Tensor, weight: Any, *saved: Any) -> Three:
    """Compute a backward pass.

    Args:
        own: torch's own way; None stands for `native_batch_norm_backward`.
        grad: Gradient of the output.
        x: The input.
        weight: The weight, or None.
        saved: Running mean and variance, saved mean and inverse deviation, whether they count, epsilon, what is wanted.
    """
    running_mean, running_var, mean, invstd, training, eps, mask = saved
    patch = _seam.serving.get("cuda" if x.is_cuda else x.device.type)
    given = weight
    if weight is None and mask[2]:  # a bias without a weight
        like = mean if running_mean is None else running_mean
        weight = torch.ones(x.shape[1], dtype=like.dtype, device=x.device)
    call = None if patch is None else patch.lookup(x, weight, None, running_mean, running_var, training)
    if call is not None:
        call.route.served.backward_calls += 1
    if call is None or call.route.engines[1] == "vendor":
        result = native_batch_norm_backward(grad, x, given, *saved) if own is None else own()
        return result[0], result[1], result[2]
    problem = call.route.problem
    if not call.dense:
        weight, running_mean, running_var = _dense(weight), _dense(running_mean), _dense(running_var)
    p = Parameters(weight, None, running_mean, running_var, 0.0, eps)
    statistics = _in(problem.statistics_dtype, Statistics(mean, invstd)) if training else running(problem, p)
    used = x if call.contiguous else call.laid_out(x)
    grads = call.route.backward(call.laid_out(grad), used, p, statistics, (mask[0], mask[1], mask[2]))
    return grads.x, grads.weight, grads.bias
