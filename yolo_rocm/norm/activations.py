"""The activation behind a BatchNorm by torch's own operators: of the normalised value, and its gradient."""

from __future__ import annotations

import torch

from ..engines.activations import activate_in_place
from .problem import IDENTITY, LEAKY_RELU, SILU, NormProblem

_HALF = (torch.float16, torch.bfloat16)


def activated(problem: NormProblem, z: torch.Tensor) -> torch.Tensor:
    """Return the activation of a normalised value, computed in place."""
    if z.dtype in _HALF and not z.is_cuda:  # torch 1.13 has no activations of fp16 on a CPU
        return z.copy_(activate_in_place(z.float(), problem.activation, problem.slope))
    return activate_in_place(z, problem.activation, problem.slope)


def gradient(problem: NormProblem, grad: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the normalised value `z` from that of its activation; the gradient itself for none."""
    if problem.activation == IDENTITY:
        return grad
    if z.dtype in _HALF and not z.is_cuda:
        return z.copy_(_gradient(problem, grad.float(), z.float()))
    return _gradient(problem, grad, z)


def _gradient(problem: NormProblem, grad: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    aten = torch.ops.aten
    if problem.activation == SILU:
        result: torch.Tensor = aten.silu_backward(grad, z)
    elif problem.activation == LEAKY_RELU:
        result = aten.leaky_relu_backward(grad, z, problem.slope, False)
    else:  # not a slope of 0, times which an infinite gradient is NaN
        result = aten.threshold_backward(grad, z, 0)
    return result
