"""BatchNorm calls of tests: problems, and what fp64 makes of them."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

from yolo_rocm.norm.plan import NORMALISATION, NormPlanner, Operands
from yolo_rocm.norm.problem import LEAKY_RELU, RELU, SILU, NormProblem

from ..engines.contract import Contract

# Sizes that are multiples of nothing, and one of everything.
SHAPES = {
    "square": (2, 5, 7, 9),
    "one pixel": (5, 7, 1, 1),
    "many channels": (2, 18, 2, 3),
    "no pixels": (6, 5),
    "400 pixels": (2, 3, 20, 20),
    "one image": (1, 4, 6, 8),
    "one channel": (3, 1, 5, 4),
    "a row of pixels": (2, 3, 19),
    "three dimensions": (1, 2, 3, 4, 5),
    "several parts": (5, 2, 9, 17),
}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Of what is computed in: torch's own on a CPU adds up plainly where one thread adds up channels_last.
_ROUNDINGS = 400


class Only(NormPlanner):
    """A planner that knows one algorithm."""

    def __init__(self, *algorithms) -> None:
        super().__init__("auto", remember=False)
        self._only = algorithms

    def candidates(self, problem):
        """Return them where they support the problem."""
        return [a for a in self._only if not a.not_supported_reasons(problem)]


def made(shape=(4, 6, 9, 7), dtype=torch.float32, device="cpu", **options) -> NormProblem:
    """Return a problem; a leaky ReLU has a slope."""
    problem = replace(NormProblem(shape, dtype, device), **options)
    return replace(problem, slope=0.1) if problem.activation == LEAKY_RELU else problem


def activation_of(problem: NormProblem, z: torch.Tensor) -> torch.Tensor:
    """Return the activation of a normalised value."""
    if problem.activation == SILU:
        return F.silu(z)
    if problem.activation == RELU:
        return F.relu(z)
    return F.leaky_relu(z, problem.slope) if problem.activation == LEAKY_RELU else z


def exact(problem: NormProblem, which: str, operands) -> torch.Tensor:
    """Return all that `Normalisation.run` does, in fp64, by autograd through the definition."""
    p = Operands(*operands).parameters(problem)
    o = Operands(*(each.detach().cpu().double().clone() for each in operands))
    leaves = [each.requires_grad_() for each in ((o.x, o.weight, o.bias) if problem.affine else (o.x,))]
    per_channel = (1, -1, *[1] * (o.x.dim() - 2))
    mean, var, rows = o.running_mean, o.running_var, problem.rows
    if problem.training:
        reduced = [0, *range(2, o.x.dim())]
        mean = o.x.mean(reduced)
        var = (o.x - mean.view(per_channel)).square().mean(reduced)
    invstd = (var + p.eps).rsqrt()
    z = (o.x - mean.view(per_channel)) * invstd.view(per_channel)
    if problem.affine:
        z = z * o.weight.view(per_channel) + o.bias.view(per_channel)
    y, tracked = activation_of(problem, z), (o.running_mean, o.running_var)
    if which == "backward":
        parts = [*torch.autograd.grad(y, leaves, o.grad), *tracked, torch.zeros(1)]
    else:
        if problem.training:
            pairs = zip(tracked, (mean, var * rows / (rows - 1)), strict=True)
            tracked = tuple(torch.lerp(old, new, p.momentum) for old, new in pairs)
        parts = [y, mean, invstd, *tracked, torch.tensor([0.0, problem.training])]
    return torch.cat([part.detach().flatten().double() for part in parts]).to(problem.device)


def allowed(problem: NormProblem, which: str) -> float:
    """Return the largest error: some roundings of what sums are computed in, and few of the data type."""
    own, wide = (torch.finfo(dtype).eps for dtype in (problem.dtype, problem.statistics_dtype))
    return _ROUNDINGS * wide + (4 * own if own > wide else 0.0)


CONTRACT = Contract(NORMALISATION, exact, allowed)
