"""BatchNorm and the activation behind it as one autograd function, which keeps only its input for backward.

torch keeps the input of a BatchNorm for the backward pass of the BatchNorm, and the normalised value for that of the
activation. Here the normalised value is computed once more in backward, from the input and the statistics.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from ..engines.autocast import without_autocast
from ..engines.layout import is_channels_last
from ..engines.torch_state import is_batched, is_plain_eager, is_transformed
from . import recipes
from .base import Parameters, Statistics
from .fusible import ACTIVATION_MODULES
from .patch import NormPatch, NormRoute
from .problem import LEAKY_RELU, RELU, SILU, NormProblem
from .seam import serving

_LAYOUTS: Final = (torch.contiguous_format, torch.channels_last)


class _Known(NamedTuple):
    """What is found out once for all calls of a kind: the route, and the layout that the input is copied to or in."""

    route: NormRoute
    layout: torch.memory_format
    copied: bool


def norm_act(x: torch.Tensor, norm: nn.BatchNorm2d, act: nn.Module) -> torch.Tensor | None:
    """Return `act(norm(x))`, with all that a training step changes in the BatchNorm; None where they must be called.

    Args:
        x: Input of the BatchNorm.
        norm: The BatchNorm; `fusible` holds for it and the activation.
        act: The activation.
    """
    patch = serving("cuda" if x.is_cuda else x.device.type) if is_plain_eager(x) else None
    if patch is None:
        return None
    held, tracked = norm._parameters, norm._buffers
    try:
        weight, bias, mean, var = held["weight"], held["bias"], tracked["running_mean"], tracked["running_var"]
        batches = tracked["num_batches_tracked"]
    except KeyError:  # taken apart by somebody
        return None
    if mean is None or var is None or (weight is None) is not (bias is None):
        return None
    slope = act.negative_slope if type(act) is nn.LeakyReLU else 0.0
    key = (x.shape, x.stride(), x.dtype, x.device, type(act), slope, *kinds(weight, bias, mean, var, batches))
    found = patch.cache("norm_act")
    try:
        known: _Known | None = found[key]
    except KeyError:
        known = found[key] = _find(patch, x, norm, act, slope)
    if known is None:
        return None
    if known.copied:
        x = x.contiguous(memory_format=known.layout)
    p = Parameters(weight, bias, mean, var, norm.momentum, norm.eps, batches)  # type: ignore[arg-type]
    report = patch.report
    report.announce(norm)  # nobody calls it
    report.count_forward(known.route.served)
    y: Any = _apply(x, weight, bias, p, known)
    if recipes.wanted(y) and y.grad_fn is not None:
        sources = (x.detach(), weight, bias, *y.grad_fn.statistics)
        recipes.offer(y, partial(_once_more, known.route, norm.eps, *sources), sources)
    return y  # type: ignore[no-any-return]


def _once_more(
    route: NormRoute,
    eps: float,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    invstd: torch.Tensor,
) -> torch.Tensor:
    """Return the activation again, to the last bit."""
    p = Parameters(weight, bias, None, None, 0.0, eps)
    with torch.no_grad():
        return without_autocast(route.activate, x, p, Statistics(mean, invstd))


def _find(patch: NormPatch, x: torch.Tensor, norm: nn.BatchNorm2d, act: nn.Module, slope: float) -> _Known | None:
    route = find_route(patch, x, norm, act, slope)
    if route is None:
        return None
    layout = _LAYOUTS[route.problem.channels_last]
    return _Known(route, layout, not x.is_contiguous(memory_format=layout))


def kinds(
    weight: torch.Tensor | None, bias: torch.Tensor | None, mean: torch.Tensor, var: torch.Tensor, batches: Any
) -> tuple[Any, ...]:
    """Return all about parameters and buffers of a BatchNorm that decides whether kernels may read and write them.

    It is asked for in every call, and written out because calls of Python take longer than what they would look up.
    """
    buffers = (
        mean.shape, mean.is_contiguous(), mean.dtype, mean.device, var.shape, var.is_contiguous(), var.dtype,
        var.device, None if batches is None else (batches.numel(), batches.dtype, batches.device),
    )  # fmt: skip
    if weight is None or bias is None:
        return buffers
    return (
        *buffers, weight.shape, weight.is_contiguous(), weight.dtype, weight.device, bias.shape, bias.is_contiguous(),
        bias.dtype, bias.device,
    )  # fmt: skip


def find_route(
    patch: NormPatch, x: torch.Tensor, norm: nn.BatchNorm2d, act: nn.Module, slope: float
) -> NormRoute | None:
    """Return how such calls are computed; None for those that torch refuses, and for unusual parameters and buffers."""
    if x.dim() != 4 or not x.is_floating_point():
        return None
    channels_last, activation = is_channels_last(x), ACTIVATION_MODULES[type(act)]
    affine = norm.weight is not None
    problem = NormProblem(tuple(x.shape), x.dtype, str(x.device), channels_last, True, affine, activation, slope)
    held = [t for t in (norm.weight, norm.bias, norm.running_mean, norm.running_var) if t is not None]
    like, batches = x.new_empty(x.shape[1], dtype=problem.statistics_dtype), norm.num_batches_tracked
    if problem.rows < 2 or any(_kind(t) != _kind(like) for t in held):
        return None
    if batches is not None and (batches.numel(), batches.dtype, batches.device) != (1, torch.int64, x.device):
        return None
    return patch.route(problem)


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.is_contiguous(), tensor.dtype, tensor.device


class _NormAct(torch.autograd.Function):
    """BatchNorm and activation. The context of a call has its statistics."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, p: Parameters, known: _Known
    ) -> torch.Tensor:
        # Backward reads those that are saved: a checkpoint puts what it has computed a second time in their place.
        y, ctx.statistics = without_autocast(known.route.forward, x, p)
        ctx.save_for_backward(x, weight, bias, *ctx.statistics)
        ctx.known, ctx.eps = known, p.eps
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, bias, mean, invstd = ctx.saved_tensors
        known: _Known = ctx.known
        wanted = ctx.needs_input_grad[:3]
        p = Parameters(weight, bias, None, None, 0.0, ctx.eps)
        # Somebody differentiates the gradients, or wants many at once.
        if torch.is_grad_enabled() or is_batched(grad) or is_transformed(grad):
            return *_differentiable(known.route.problem, grad, x, p, wanted), None, None
        known.route.served.backward_calls += 1
        grad = grad.resolve_neg().contiguous(memory_format=known.layout)
        x = x.contiguous(memory_format=known.layout)  # hooks may have returned another layout
        return *without_autocast(known.route.backward, grad, x, p, Statistics(mean, invstd), wanted), None, None


# `Function.apply` first looks for what transforms of functorch may have left in the arguments, which costs as much as
# the rest of the call. Here is none: `is_plain_eager` has looked.
_apply: Final[Any] = super(torch.autograd.Function, _NormAct).apply


def _differentiable(
    problem: NormProblem, grad: torch.Tensor, x: torch.Tensor, p: Parameters, wanted: tuple[bool, ...]
) -> tuple[torch.Tensor | None, ...]:
    """Return gradients that have gradients: torch's own, of the whole computed anew from the input."""
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs: list[Any] = of_this_call(x, p.weight, p.bias)
        y = functional.batch_norm(inputs[0], None, None, inputs[1], inputs[2], True, 0.0, p.eps)
        y = activated(problem, y)
    asked = [tensor for tensor, want in zip(inputs, wanted, strict=True) if want]
    found = iter(torch.autograd.grad(y, asked, grad, create_graph=create))
    return tuple(next(found) if want else None for want in wanted)


def of_this_call(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Return the same tensors, so that gradients are those of one call.

    What is asked for them themselves has in it how one was computed from another in earlier calls.
    """
    return [None if tensor is None else tensor.view_as(tensor) for tensor in tensors]


def activated(problem: NormProblem, y: torch.Tensor) -> torch.Tensor:
    """Return a problem's activation of a normalised value, by torch's own functions."""
    if problem.activation == SILU:
        return functional.silu(y)
    return functional.leaky_relu(y, problem.slope) if problem.activation in (RELU, LEAKY_RELU) else y
