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

from ..conv.patch import Patch
from ..conv.problem import laid_out
from ..conv.seam import serving as serving_convolutions
from ..engines.autocast import autocast_dtype, is_on, off
from ..engines.torch_state import has_hooks, is_batched, is_plain_eager, is_transformed
from ..norm import recipes
from ..norm.base import Parameters, Statistics
from ..norm.fused import gradients_anew, held_by, kinds, normalised, recipe_of
from ..norm.seam import serving as serving_norms
from .block_plan import BlockPlan, find
from .call import Call, LeanCall

# Where torch does not say whether a graph is going to be used again, what is kept for it goes through torch's hooks.
_keeps_graph: Final[Callable[[], bool] | None] = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
_is_profiled: Final[Callable[[], bool]] = torch._C._autograd._profiler_enabled
_CONVOLUTION, _NORMALISATION = "yolo_rocm::convolution", "yolo_rocm::normalisation"


def conv_norm_act(x: torch.Tensor, conv: nn.Module | None, norm: nn.BatchNorm2d, act: nn.Module) -> torch.Tensor | None:
    """Return `act(norm(conv(x)))`, with all that a training step changes; None where the modules must be called.

    Args:
        x: Input of the convolution.
        conv: The convolution.
        norm: The BatchNorm; `fusible` holds for it and the activation.
        act: The activation.
    """
    if type(conv) is not nn.Conv2d or not is_plain_eager(x):
        return None
    own = conv.__dict__
    device = "cuda" if x.is_cuda else x.device.type
    patch, norms = serving_convolutions(device), serving_norms(device)
    if patch is None or norms is None or patch.report.timer is not None or has_hooks(own):
        return None
    p, filters = held_by(norm), own["_parameters"]
    kernel = filters.get("weight")
    if p is None or kernel is None or "bias" not in filters:  # taken apart by somebody
        return None
    offset, weight, bias = filters["bias"], p.weight, p.bias
    slope = act.negative_slope if type(act) is nn.LeakyReLU else 0.0
    to = autocast_dtype(device)
    key = (
        x.shape, x.stride(), x.dtype, x.device, to, kernel.shape, kernel.stride(), kernel.dtype, kernel.device,
        type(kernel), None if offset is None else (offset.dtype, offset.shape, offset.device), own["stride"],
        own["padding"], own["dilation"], own["groups"], own["padding_mode"], type(act), slope,
        *kinds(p),
    )  # fmt: skip
    found = norms.cache("conv_norm_act")
    generation = patch.planner.generation
    try:
        entry: tuple[Patch, int, BlockPlan | None] | None = found.get(key)
    except TypeError:  # a stride or a padding that somebody has set to a list
        return None
    if entry is None or entry[0] is not patch or entry[1] != generation:
        entry = found[key] = (patch, generation, find(patch, norms, x, (conv, norm, act), slope, to))
    known = entry[2]
    if known is None:
        return None
    route = known.conv
    patch.report.count_call(route.served, conv)
    norms.report.count_call(known.norm.served, norm)
    if x.dtype != known.dtype:
        x = x.to(known.dtype)
    table = recipes.active_recipes()
    if table is None:
        return _apply(x, kernel, offset, weight, bias, Call(known, p, kernel, offset))  # type: ignore[no-any-return]
    offers = known.values >= table.smallest
    call = LeanCall(known, p, kernel, offset, offers)
    kept = x.requires_grad or kernel.requires_grad  # where the convolution is frozen, hooks see to the rest
    if kept and _keeps_graph is not None and torch.is_grad_enabled() and recipes.only_ours():
        call.holds, call.keeping = True, table.instead_of(x)
    result = _apply(x, kernel, offset, weight, bias, call)
    if offers:
        if result.requires_grad and call.computed is not None:
            y, statistics = call.computed
            table.add(result, recipe_of(result, known.norm, norm.eps, (y, weight, bias, *statistics)))
        call.computed = None  # for whoever reads the result
    return result  # type: ignore[no-any-return]


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
        call: Call,
    ) -> torch.Tensor:
        known, p = call.known, call.p
        filters, added = kernel, offset
        if known.convert is not None:
            filters = known.convert(kernel)
            call.version = 0 if kernel.is_inference() else kernel._version
            added = None if offset is None else offset.to(known.dtype)
        if known.is_cast and is_on():
            with off():
                y, result, statistics = _computed(known, x, filters, added, p)
        else:
            y, result, statistics = _computed(known, x, filters, added, p)
        ctx.call = call
        if isinstance(call, LeanCall):
            if call.offers:
                call.computed = y, statistics
            if call.holds:
                call.hold(filters, x, y, statistics)
                return result
        if any(ctx.needs_input_grad[:3]):
            ctx.save_for_backward(filters, y, weight, bias, x, *statistics)
        else:  # frozen: nothing but the output of the convolution is read again
            ctx.save_for_backward(None, y, weight, bias, None, *statistics)
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # Somebody differentiates the gradients, or wants many at once.
        if torch.is_grad_enabled() or is_batched(grad) or is_transformed(grad):
            with off():  # as torch does in backward
                return *_differentiable(ctx, grad), None
        if is_on():
            with off():
                return _gradients(ctx, grad)
        return _gradients(ctx, grad)


# `Function.apply` first looks for what transforms of functorch have left in the arguments. `is_plain_eager` has looked.
_apply: Final[Any] = super(torch.autograd.Function, _Block).apply


def _computed(
    known: BlockPlan, x: torch.Tensor, kernel: torch.Tensor, offset: torch.Tensor | None, p: Parameters
) -> tuple[torch.Tensor, torch.Tensor, Statistics]:
    """Return the output of the convolution, that of the block, and the statistics."""
    convolve, normalise = known.conv.forward, known.norm.forward
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
    call: Call = ctx.call
    known = call.known
    for_x, for_kernel, for_offset, for_weight, for_bias, _ = ctx.needs_input_grad
    norm, conv = known.norm, known.conv
    holding = call if isinstance(call, LeanCall) and call.holds else None
    if holding is not None:
        kernel, y, keeping, kept_x, statistics = holding.held()
        weight, bias = call.p[:2]
    else:
        keeping = None
        kernel, y, weight, bias, kept_x, mean, invstd = ctx.saved_tensors
        statistics = Statistics(mean, invstd)
        if y.stride() != known.strides:  # hooks have returned another layout
            y = laid_out(y, known.channels_last)
    p = Parameters(weight, bias, None, None, 0.0, call.p.eps)
    if grad.is_neg():
        grad = grad.resolve_neg()
    if grad.stride() != known.strides:
        grad = grad.contiguous(memory_format=norm.layout)
    norm.served.backward_calls += 1
    wanted = (for_x or for_kernel or for_offset, for_weight, for_bias)
    norm_backward, conv_backward = norm.backward, conv.backward
    if _is_profiled():
        norm_backward = partial(_marked, _NORMALISATION, norm_backward)
        conv_backward = partial(_marked, _CONVOLUTION, conv_backward)
    grad_y, grad_weight, grad_bias = norm_backward(grad, y, p, statistics, wanted)
    if holding is not None and _keeps_graph is not None and not _keeps_graph():
        holding.let_go()
    del y  # the input may be made in its place
    if grad_y is None:
        return None, None, None, grad_weight, grad_bias, None
    conv.served.backward_calls += 1
    grad_offset = grad_y.sum((0, 2, 3)) if for_offset else None
    if for_x or for_kernel:
        x = kept_x if keeping is None else keeping.made()
        assert x is not None  # one of the two is kept
        assert kernel is not None
        grad_x, grad_kernel = conv_backward(grad_y, x, kernel, (for_x, for_kernel, known.widens))
        if grad_x is not None:
            grad_x = laid_out(grad_x, known.channels_last)
        if grad_kernel is not None:
            grad_kernel = laid_out(grad_kernel, known.channels_last)
    else:
        grad_x = grad_kernel = None
    return grad_x, grad_kernel, grad_offset, grad_weight, grad_bias, None  # autograd converts those that were converted


def _differentiable(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return gradients that have gradients: torch's own, of the whole computed anew from the input."""
    call: Call = ctx.call
    known, kernel, offset = call.known, call.kernel, call.offset
    if isinstance(call, LeanCall) and call.holds:
        _, y, _, x, _ = call.held()
        weight, bias = call.p[:2]
        if x is None:
            raise RuntimeError(
                "gradients of gradients, and gradients for many outputs at once, need the input of every layer, and "
                "lean memory does not keep it: train with step.memory: full"
            )
    else:
        _, y, weight, bias, x, _, _ = ctx.saved_tensors
    problem = known.conv.problem

    def compute(
        x: torch.Tensor | None, kernel: Any, offset: torch.Tensor | None, weight: Any, bias: Any
    ) -> torch.Tensor:
        z = y
        if x is not None:
            if known.convert is not None:
                call.check_kernel()
                kernel, offset = kernel.to(known.dtype), None if offset is None else offset.to(known.dtype)
            z = functional.conv2d(x, kernel, offset, problem.stride, problem.padding, problem.dilation, problem.groups)
        return normalised(known.norm.problem, z, weight, bias, call.p.eps)

    return gradients_anew(compute, (x, kernel, offset, weight, bias), ctx.needs_input_grad[:5], grad)
