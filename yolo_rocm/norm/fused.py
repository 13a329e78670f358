"""BatchNorm and the activation behind it as one autograd function, which keeps only its input for backward.

torch keeps the input of a BatchNorm for the backward pass of the BatchNorm, and the normalised value for that of the
activation. Here the normalised value is computed once more in backward, from the input and the statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from ..engines.activations import activate_in_place
from ..engines.autocast import without_autocast
from ..engines.layout import is_channels_last
from ..engines.torch_state import is_batched, is_plain_eager, is_transformed
from . import recipes
from .base import Parameters, Statistics
from .fusible import ACTIVATION_MODULES
from .keeping import Activation
from .patch import NormPatch, NormRoute
from .problem import NormProblem
from .seam import serving


def held_by(norm: nn.BatchNorm2d) -> Parameters | None:
    """Return what a BatchNorm holds; None where somebody has taken it apart."""
    own, tracked = norm._parameters, norm._buffers
    try:
        weight, bias, mean, var = own["weight"], own["bias"], tracked["running_mean"], tracked["running_var"]
        batches = tracked["num_batches_tracked"]
    except KeyError:
        return None
    if mean is None or var is None or (weight is None) is not (bias is None):
        return None
    return Parameters(weight, bias, mean, var, norm.momentum, norm.eps, batches)  # type: ignore[arg-type]


def norm_act(x: torch.Tensor, norm: nn.BatchNorm2d, act: nn.Module) -> torch.Tensor | None:
    """Return `act(norm(x))`, with all that a training step changes in the BatchNorm; None where they must be called.

    Args:
        x: Input of the BatchNorm.
        norm: The BatchNorm; `fusible` holds for it and the activation.
        act: The activation.
    """
    patch = serving("cuda" if x.is_cuda else x.device.type) if is_plain_eager(x) else None
    p = None if patch is None else held_by(norm)
    if patch is None or p is None:
        return None
    weight, bias = p.weight, p.bias
    slope = act.negative_slope if type(act) is nn.LeakyReLU else 0.0
    key = (x.shape, x.stride(), x.dtype, x.device, type(act), slope, *kinds(p))
    found = patch.cache("norm_act")
    try:
        route: NormRoute | None = found[key]
    except KeyError:
        route = found[key] = find_route(patch, x, norm, act, slope)
    if route is None:
        return None
    x = x.contiguous(memory_format=route.layout)
    patch.report.count_call(route.served, norm)
    y: Any = _apply(x, weight, bias, p, route)
    table = recipes.wanted(y)
    if table is not None and y.grad_fn is not None:
        table.add(y, recipe_of(y, route, norm.eps, (x.detach(), weight, bias, *y.grad_fn.statistics)))
    return y  # type: ignore[no-any-return]


def recipe_of(y: torch.Tensor, route: NormRoute, eps: float, sources: tuple[torch.Tensor | None, ...]) -> Activation:
    """Return how an activation is computed once more, to the last bit.

    Args:
        y: The activation.
        route: What has computed it.
        eps: Of the BatchNorm.
        sources: Its input, weight, bias, and the mean and inverse deviation of the batch.
    """

    def again() -> torch.Tensor:
        x, weight, bias, mean, invstd = sources
        statistics = Statistics(mean, invstd)  # type: ignore[arg-type]
        return route.activate(x, Parameters(weight, bias, None, None, 0.0, eps), statistics)  # type: ignore[arg-type]

    return Activation(y, again, sources)


def kinds(p: Parameters) -> tuple[Any, ...]:
    """Return all about parameters and buffers of a BatchNorm that decides whether kernels may read and write them.

    It is asked for in every call, and written out because calls of Python take longer than what they would look up.
    """
    weight, bias, mean, var, _, _, batches = p
    assert mean is not None  # see `held_by`
    assert var is not None
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
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        p: Parameters,
        route: NormRoute,
    ) -> torch.Tensor:
        # Backward reads those that are saved: a checkpoint puts what it has computed a second time in their place.
        y, ctx.statistics = without_autocast(route.forward, x, p)
        ctx.save_for_backward(x, weight, bias, *ctx.statistics)
        ctx.route, ctx.eps = route, p.eps
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, bias, mean, invstd = ctx.saved_tensors
        route: NormRoute = ctx.route
        wanted = ctx.needs_input_grad[:3]
        p = Parameters(weight, bias, None, None, 0.0, ctx.eps)
        # Somebody differentiates the gradients, or wants many at once.
        if torch.is_grad_enabled() or is_batched(grad) or is_transformed(grad):
            return *_differentiable(route.problem, grad, x, p, wanted), None, None
        route.served.backward_calls += 1
        grad = grad.resolve_neg().contiguous(memory_format=route.layout)
        x = x.contiguous(memory_format=route.layout)  # hooks may have returned another layout
        return *without_autocast(route.backward, grad, x, p, Statistics(mean, invstd), wanted), None, None


# `Function.apply` first looks for what transforms of functorch may have left in the arguments, which costs as much as
# the rest of the call. Here is none: `is_plain_eager` has looked.
_apply: Final[Any] = super(torch.autograd.Function, _NormAct).apply


def _differentiable(
    problem: NormProblem, grad: torch.Tensor, x: torch.Tensor, p: Parameters, wanted: tuple[bool, ...]
) -> tuple[torch.Tensor | None, ...]:
    def compute(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        return normalised(problem, x, weight, bias, p.eps)

    return gradients_anew(compute, (x, p.weight, p.bias), wanted, grad)


def normalised(
    problem: NormProblem, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> torch.Tensor:
    """Return BatchNorm and activation of a training step by torch's own functions; nothing is updated."""
    y = functional.batch_norm(x, None, None, weight, bias, True, 0.0, eps)
    return activate_in_place(y, problem.activation, problem.slope)


def gradients_anew(
    compute: Callable[..., torch.Tensor],
    tensors: Sequence[torch.Tensor | None],
    wanted: Sequence[bool],
    grad: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    """Return gradients that have gradients: torch's own, of all that is computed anew.

    Args:
        compute: Computes the result from the tensors.
        tensors: Inputs and parameters.
        wanted: Which of them gradients are wanted of.
        grad: Gradient of the result.
    """
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        # Of this call: what is asked for tensors themselves has in it how one came of another in earlier calls.
        inputs = [None if tensor is None else tensor.view_as(tensor) for tensor in tensors]
        y = compute(*inputs)
    asked = [tensor for tensor, want in zip(inputs, wanted, strict=True) if tensor is not None and want]
    found = iter(torch.autograd.grad(y, asked, grad, create_graph=create))
    return tuple(next(found) if want else None for want in wanted)
