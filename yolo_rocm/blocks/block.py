"""Convolution, BatchNorm and activation as one function of autograd, with the bits of the three.

On a fast GPU a training step waits for Python: every convolution through the dispatcher's Python kernel, every function
of autograd and every tensor handed to a hook is time. Here is one function, and what it needs is looked up once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from ..conv.problem import laid_out
from ..conv.seam import serving as serving_convolutions
from ..norm import recipes
from ..norm.algorithms.base import Parameters, Statistics
from ..norm.autocast import autocast_dtype, is_on, off
from ..norm.fused import activated
from ..norm.fusible import ordinary, watched
from ..norm.keeping import Keeping
from ..norm.seam import serving as serving_norms
from .again import Again
from .known import Known, find

# Where torch does not say whether a graph is going to be used again, what is kept for it goes through torch's hooks.
_keeps_graph: Final[Callable[[], bool] | None] = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
_is_profiled: Final[Callable[[], bool]] = torch._C._autograd._profiler_enabled
_CONVOLUTION, _NORMALISATION = "yolo_rocm::convolution", "yolo_rocm::normalisation"
_pop: Final[Callable[[], None]] = torch._C._autograd._pop_saved_tensors_default_hooks
_push: Final[Callable[..., None]] = torch._C._autograd._push_saved_tensors_default_hooks


def conv_norm_act(x: torch.Tensor, conv: nn.Module | None, norm: nn.BatchNorm2d, act: nn.Module) -> torch.Tensor | None:
    """Return `act(norm(conv(x)))`, with all that a training step changes; None where the modules must be called.

    Args:
        x: Input of the convolution.
        conv: The convolution.
        norm: The BatchNorm; `fusible` holds for it and the activation.
        act: The activation.
    """
    if type(conv) is not nn.Conv2d or not ordinary(x):
        return None
    own = conv.__dict__
    device = "cuda" if x.is_cuda else x.device.type
    patch, norms = serving_convolutions(device), serving_norms(device)
    if patch is None or norms is None or patch.report.timer is not None or watched(own):
        return None
    filters, held, tracked = own["_parameters"], norm._parameters, norm._buffers
    try:
        kernel, offset, weight, bias = filters["weight"], filters["bias"], held["weight"], held["bias"]
        mean, var, batches = tracked["running_mean"], tracked["running_var"], tracked["num_batches_tracked"]
    except KeyError:  # taken apart by somebody
        return None
    if kernel is None or mean is None or var is None or (weight is None) is not (bias is None):
        return None
    slope = act.negative_slope if type(act) is nn.LeakyReLU else 0.0
    to = autocast_dtype(device)
    key = (
        x.shape, x.stride(), x.dtype, x.device, to, kernel.shape, kernel.stride(), kernel.dtype, type(kernel),
        None if offset is None else offset.dtype, own["stride"], own["padding"], own["dilation"], own["groups"],
        own["padding_mode"], type(act), slope, mean.shape, mean.dtype, mean.device,
        None if weight is None else weight.dtype,
    )  # fmt: skip
    table = norms.fused()
    known: Known | None = table.get(key)
    if known is None or not known.is_current(patch):
        known = table[key] = find(patch, norms, x, (conv, norm, act), slope, to)
    route = known.conv
    if route is None:
        return None
    patch.report.count_call(route.served, conv)
    norms.report.count_call(known.norm.served, norm)
    p = Parameters(weight, bias, mean, var, norm.momentum, norm.eps, batches)  # type: ignore[arg-type]
    call = _Call(known, p, kernel, offset)
    if x.dtype != known.dtype:
        x = x.to(known.dtype)
    if not recipes.wanted():
        return _apply(x, kernel, offset, weight, bias, call)  # type: ignore[no-any-return]
    return _lean(x, call)


def _lean(x: torch.Tensor, call: _Call) -> torch.Tensor:
    """Compute a block while this thread keeps recipes: its input is kept as one, its result has one."""
    known, weight, bias = call.known, call.p.weight, call.p.bias
    call.wants_y = True
    if _keeps_graph is None or not recipes.only_ours():
        result = _apply(x, call.kernel, call.offset, weight, bias, call)
    else:
        if recipes.wanted(x):
            call.keeping = recipes.pack(x)
        try:
            _pop()
            result = _apply(x, call.kernel, call.offset, weight, bias, call)
        finally:
            if not recipes.only_ours():  # Ctrl-C may have come before they were taken off
                _push(recipes.pack, recipes.unpack)
    if recipes.wanted(result) and result.requires_grad:
        recipes.remember(result, Again(known, call.p.eps, call.y, weight, bias, call.statistics))
    del call.y  # autograd has it, and lets it go after backward
    return result  # type: ignore[no-any-return]


class _Call:
    """What a call of the function has besides the tensors that autograd keeps.

    Attributes:
        known: How it is computed.
        p: Of the BatchNorm.
        kernel: Weight of the convolution as the layer has it, for gradients of gradients.
        offset: Its bias, likewise.
        keeping: The input, where it is kept as a recipe.
        wants_y: Whether the convolution's output is handed out here.
        y: That output.
        statistics: Of the batch.
    """

    __slots__ = ("keeping", "kernel", "known", "offset", "p", "statistics", "wants_y", "y")

    y: torch.Tensor
    statistics: Statistics

    def __init__(self, known: Known, p: Parameters, kernel: torch.Tensor, offset: torch.Tensor | None) -> None:
        self.known, self.p, self.kernel, self.offset = known, p, kernel, offset
        self.keeping: Keeping | None = None
        self.wants_y = False


class _Block(torch.autograd.Function):
    """The block. Its context has the call."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        kernel: torch.Tensor,
        offset: torch.Tensor | None,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        call: _Call,
    ) -> torch.Tensor:
        known, p = call.known, call.p
        filters, added = kernel, offset
        if known.convert is not None:
            filters = known.convert(kernel)
            added = None if offset is None else offset.to(known.dtype)
        if known.is_cast and is_on():
            with off():
                y, result, call.statistics = _computed(known, x, filters, added, p)
        else:
            y, result, call.statistics = _computed(known, x, filters, added, p)
        if call.keeping is None:
            ctx.save_for_backward(filters, y, weight, bias, x)
        else:
            ctx.save_for_backward(filters, y, weight, bias)
        ctx.call = call
        if call.wants_y:
            call.y = y
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():  # somebody wants to differentiate the gradients
            return *_differentiable(ctx, grad), None
        if is_on():
            with off():
                return _gradients(ctx, grad)
        return _gradients(ctx, grad)


# `Function.apply` first looks for what transforms of functorch have left in the arguments. `ordinary` has looked.
_apply: Final[Any] = super(torch.autograd.Function, _Block).apply


def _computed(
    known: Known, x: torch.Tensor, kernel: torch.Tensor, offset: torch.Tensor | None, p: Parameters
) -> tuple[torch.Tensor, torch.Tensor, Statistics]:
    """Return the output of the convolution, that of the block, and the statistics."""
    convolve, normalise = known.conv.forward, known.norm.forward  # type: ignore[union-attr]
    if _is_profiled():
        convolve, normalise = partial(_marked, _CONVOLUTION, convolve), partial(_marked, _NORMALISATION, normalise)
    y = convolve(x, kernel, offset)
    if y.stride() != known.strides:
        y = laid_out(y, known.channels_last)
    result, statistics = normalise(y, p)
    return y, result, statistics


def _marked(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """Compute something as a range with a name, for whoever reads a profile."""
    with torch.autograd.profiler.record_function(name):
        return function(*args)


def _gradients(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of all that `forward` takes."""
    call: _Call = ctx.call
    known, keeping = call.known, call.keeping
    kernel, y, weight, bias, *rest = ctx.saved_tensors
    for_x, for_kernel, for_offset, for_weight, for_bias, _ = ctx.needs_input_grad
    norm, conv = known.norm, known.conv
    assert conv is not None  # or there was no call
    if grad.stride() != known.strides:
        grad = grad.contiguous(memory_format=known.layout)
    norm.served.backward_calls += 1
    wanted = (for_x or for_kernel or for_offset, for_weight, for_bias)
    p = Parameters(weight, bias, None, None, 0.0, call.p.eps)
    norm_backward, conv_backward = norm.backward, conv.backward
    if _is_profiled():
        norm_backward = partial(_marked, _NORMALISATION, norm_backward)
        conv_backward = partial(_marked, _CONVOLUTION, conv_backward)
    grad_y, grad_weight, grad_bias = norm_backward(grad, y, p, call.statistics, wanted)
    if keeping is not None and _keeps_graph is not None and not _keeps_graph():
        call.keeping = None  # torch forgets saved tensors by itself, and attributes only with the graph
    if grad_y is None:
        return None, None, None, grad_weight, grad_bias, None
    conv.served.backward_calls += 1
    grad_offset = grad_y.sum((0, 2, 3)) if for_offset else None
    if for_x or for_kernel:
        x = rest[0] if keeping is None else keeping.value()
        grad_x, grad_kernel = conv_backward(grad_y, x, kernel, (for_x, for_kernel))
        if grad_x is not None:
            grad_x = laid_out(grad_x, known.channels_last)
        if grad_kernel is not None:
            grad_kernel = laid_out(grad_kernel, known.channels_last)
    else:
        grad_x = grad_kernel = None
    return grad_x, grad_kernel, grad_offset, grad_weight, grad_bias, None  # autograd converts those that were converted


def _differentiable(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return gradients that have gradients: torch's own, of the whole computed anew from the input."""
    call: _Call = ctx.call
    if call.keeping is not None:
        raise RuntimeError(
            "gradients of gradients need the input of every layer, and lean memory does not keep it: "
            "train with step.memory: full"
        )
    known, kernel, offset = call.known, call.kernel, call.offset
    _, _, weight, bias, x = ctx.saved_tensors
    problem = known.conv.problem  # type: ignore[union-attr]
    inputs = (x, kernel, offset, weight, bias)
    if known.convert is not None:
        kernel, offset = kernel.to(known.dtype), None if offset is None else offset.to(known.dtype)
    y = functional.conv2d(x, kernel, offset, problem.stride, problem.padding, problem.dilation, problem.groups)
    y = activated(known.norm.problem, functional.batch_norm(y, None, None, weight, bias, True, 0.0, call.p.eps))
    wanted = ctx.needs_input_grad[:5]
    asked = [tensor for tensor, want in zip(inputs, wanted, strict=True) if want]
    found = iter(torch.autograd.grad(y, asked, grad, create_graph=True))
    return tuple(next(found) if want else None for want in wanted)
