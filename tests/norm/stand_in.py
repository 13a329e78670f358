"""BatchNorm and SiLU as one autograd function in plain torch, which offers its result: what lean memory works with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from yolo_rocm.norm import recipes
from yolo_rocm.norm.keeping import Activation


def offer(y: torch.Tensor, recompute: Callable[[], torch.Tensor], sources: Sequence[torch.Tensor] = ()) -> None:
    """Say that an activation can be computed again, where recipes are kept and it is large enough."""
    table = recipes.wanted(y)
    if table is not None:
        table.add(y, Activation(y, recompute, sources))


def activated(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, silu: bool) -> torch.Tensor:
    """Return the activation."""
    y = functional.batch_norm(x, None, None, weight, bias, True, 0.0, eps)
    return functional.silu(y) if silu else y


class _NormAct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, silu: bool):
        ctx.save_for_backward(x, weight, bias)
        ctx.rest = eps, silu
        return activated(x, weight, bias, eps, silu)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor):
        with torch.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
            y = activated(*leaves, *ctx.rest)
        return *torch.autograd.grad(y, leaves, grad), None, None


def norm_act(x: torch.Tensor, norm: torch.nn.BatchNorm2d, silu: bool = True) -> torch.Tensor:
    """Return the activation of a training step, and offer it."""
    y = _NormAct.apply(x, norm.weight, norm.bias, norm.eps, silu)
    if recipes.active_recipes():
        kept, weight, bias = x.detach(), norm.weight.detach(), norm.bias.detach()
        offer(y, lambda: activated(kept, weight, bias, norm.eps, silu), (x, norm.weight, norm.bias))
    return y
