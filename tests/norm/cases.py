"""BatchNorm in fp64, to compare algorithms with, and tensors for them."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from yolo_rocm.norm.base import NormGrads, Parameters
from yolo_rocm.norm.problem import LEAKY_RELU, RELU, SILU, NormProblem

MOMENTUM, EPS = 0.03, 1e-3


def laid_out(problem: NormProblem, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the data type and layout of a problem."""
    tensor = tensor.to(problem.device, problem.dtype)
    if not problem.channels_last:
        return tensor.contiguous()
    by = (0, *range(2, tensor.dim()), 1)
    back = (0, tensor.dim() - 1, *range(1, tensor.dim() - 1))
    return tensor.permute(by).contiguous().permute(back)


def drawn(
    problem: NormProblem, seed: int = 0, mean: float = 0.5, deviation: float = 2.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an input and a gradient."""
    torch.manual_seed(seed)
    x = torch.randn(problem.shape) * deviation + mean
    return laid_out(problem, x), laid_out(problem, torch.randn(problem.shape))


def parameters(
    problem: NormProblem, track: bool = True, count: bool = False, eps: float = EPS, momentum: float = MOMENTUM
) -> Parameters:
    """Return parameters and running statistics that are none of the usual ones."""
    torch.manual_seed(7)
    channels, device = problem.channels, problem.device
    weight, bias, mean = torch.rand(channels) + 0.5, torch.randn(channels), torch.randn(channels)
    var = torch.rand(channels) + 0.5
    return Parameters(
        weight.to(device) if problem.affine else None,
        bias.to(device) if problem.affine else None,
        mean.to(device) if track else None,
        var.to(device) if track else None,
        momentum,
        eps,
        torch.tensor(41, device=device) if count else None,
    )


def activation(problem: NormProblem, z: torch.Tensor) -> torch.Tensor:
    """Return the activation, by torch."""
    if problem.activation == SILU:
        return F.silu(z)
    if problem.activation == RELU:
        return F.relu(z)
    return F.leaky_relu(z, problem.slope) if problem.activation == LEAKY_RELU else z


class Exact:
    """A problem in fp64: the activation, statistics before and after, gradients."""

    def __init__(self, problem: NormProblem, x: torch.Tensor, grad: torch.Tensor, p: Parameters) -> None:
        x, grad = x.double().cpu().requires_grad_(), grad.double().cpu()
        wide = [None if each is None else each.double().cpu().clone() for each in p[:4]]
        weight, bias, self.running_mean, self.running_var = wide
        leaves = [x]
        if weight is not None and bias is not None:
            leaves += [weight.requires_grad_(), bias.requires_grad_()]
        over = [0, *range(2, x.dim())]
        with torch.no_grad():
            self.mean, variance = x.mean(over), x.var(over, unbiased=False)
            if not problem.training:
                self.mean, variance = self.running_mean.clone(), self.running_var.clone()
            self.invstd = (variance + p.eps).rsqrt()
        if problem.rows == 1 and problem.training:  # torch refuses it
            by = [1, -1, *[1] * (x.dim() - 2)]
            centred = (x - x.mean(over, keepdim=True)) * self.invstd.view(by)
            z = centred if weight is None else centred * weight.view(by) + bias.view(by)
        else:
            z = F.batch_norm(x, self.running_mean, self.running_var, weight, bias, problem.training, p.momentum, p.eps)
        self.y = activation(problem, z)
        self.grads = NormGrads(*torch.autograd.grad(self.y, leaves, grad), *[None] * (3 - len(leaves)))
        self.y = self.y.detach()
