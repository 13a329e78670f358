"""How exact a normalisation has to be: a few roundings of what it is computed in, times what a large mean costs.

The exact results are those of the definition in fp64 on the CPU, by autograd: nothing under test has a part in them.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.nn import functional

from .algorithms import NormAlgorithm
from .base import Parameters
from .plan import Operands
from .problem import LEAKY_RELU, RELU, SILU, NormProblem

Results = dict[str, torch.Tensor]
_OF_VALUES: Final = ("y", "grad_x")
# Roundings; torch's own sums on a CPU are plain ones where a single thread adds up channels_last.
ROUNDINGS: Final = 8.0
ROUNDINGS_OF_TORCH: Final = 200.0


def exact_results(problem: NormProblem, operands: Operands) -> Results:
    """Return everything that a training step computes, in fp64 on the CPU.

    Args:
        problem: The problem.
        operands: Its tensors, on any device.
    """
    wide = Operands(*(each.detach().double().cpu() for each in operands))
    p = wide.parameters(problem)
    names = ("x", "weight", "bias") if problem.affine else ("x",)
    leaves = [getattr(wide, name).requires_grad_() for name in names]
    x = leaves[0]
    per_channel = (1, -1, *[1] * (x.dim() - 2))
    mean, var = wide.running_mean, wide.running_var
    if problem.training:
        reduced = [0, *range(2, x.dim())]
        mean = x.mean(reduced)
        var = (x - mean.view(per_channel)).square().mean(reduced)
    invstd = (var + p.eps).rsqrt()
    z = (x - mean.view(per_channel)) * invstd.view(per_channel)
    if problem.affine:
        z = z * leaves[1].view(per_channel) + leaves[2].view(per_channel)
    y = _activated(problem, z)
    grads = torch.autograd.grad(y, leaves, wide.grad)
    found = {"y": y, "mean": mean, "invstd": invstd}
    found |= {f"grad_{name}": grad for name, grad in zip(names, grads, strict=True)}
    if problem.training:
        unbiased = var * problem.rows / (problem.rows - 1)
        found["running_mean"] = torch.lerp(wide.running_mean, mean, p.momentum)
        found["running_var"] = torch.lerp(wide.running_var, unbiased, p.momentum)
    return {name: value.detach() for name, value in found.items()}


def _activated(problem: NormProblem, z: torch.Tensor) -> torch.Tensor:
    if problem.activation == SILU:
        return functional.silu(z)
    if problem.activation == RELU:
        return functional.relu(z)
    return functional.leaky_relu(z, problem.slope) if problem.activation == LEAKY_RELU else z


def results_of(algorithm: NormAlgorithm, problem: NormProblem, operands: Operands) -> Results:
    """Return everything that an algorithm computes in a training step; the operands stay as they are.

    `again` counts the values that computing the activation once more gives with other bits, `counted` how often the
    batch was counted, and `touched` how many of the running statistics backward has changed.
    """
    mean, var = operands.running_mean.clone(), operands.running_var.clone()
    batches = torch.zeros((), dtype=torch.long, device=mean.device)
    p: Parameters = operands.parameters(problem)._replace(running_mean=mean, running_var=var, batches=batches)
    y, statistics = algorithm.forward(problem, operands.x, p)
    found = {"y": y, "mean": statistics.mean, "invstd": statistics.invstd}
    if problem.training:
        found |= {"running_mean": mean.clone(), "running_var": var.clone()}
    before = torch.stack((mean, var)).clone()
    again = algorithm.activate(problem, operands.x, p, statistics)
    wanted = (True, problem.affine, problem.affine)
    grads = algorithm.backward(problem, operands.grad, operands.x, p, statistics, wanted)
    found |= {f"grad_{name}": g for name, g in zip(("x", "weight", "bias"), grads, strict=True) if g is not None}
    found["again"] = (again != y).sum()
    found["counted"] = batches
    found["touched"] = (torch.stack((mean, var)) != before).sum()
    return found


def errors(problem: NormProblem, results: Results, exact: Results) -> dict[str, float]:
    """Return the relative error of each result; of what is counted, by how many it is off.

    Gradients of weight and bias are sums that may come near zero: they are related to what their terms are at least.
    """
    found = {}
    for name, value in exact.items():
        least = {"y": 1.0, "grad_x": float(exact["invstd"].max())}.get(name, 0.0)
        least = problem.rows**0.5 if name in ("grad_weight", "grad_bias") else least
        found[name] = _size(results[name].detach().double().cpu() - value) / max(_size(value), least)
    counts = {"again": 0, "counted": int(problem.training), "touched": 0}
    return found | {name: float(abs(int(results[name]) - count)) for name, count in counts.items()}


def allowed(problem: NormProblem, operands: Operands, exact: Results, roundings: float = ROUNDINGS) -> dict[str, float]:
    """Return the largest error of each result; of what is counted there is none, and half of one stands for it.

    Args:
        problem: The problem.
        operands: Its tensors.
        exact: The exact results.
        roundings: Of what sums are computed in: fp32 at least.
    """
    x = operands.x.detach().double().cpu()
    # A value has lost this much of its digits when the mean is taken away.
    lost = 3.0
    if problem.training:
        lost = float((1 + x.mean([0, *range(2, x.dim())]).abs() * exact["invstd"]).max())
    own, wide = (torch.finfo(dtype).eps for dtype in (problem.dtype, problem.statistics_dtype))
    room = {}
    for name in exact:
        room[name] = roundings * wide * (1.0 if name in ("mean", "running_mean") else lost)
        if name in _OF_VALUES or (problem.dtype != problem.statistics_dtype and name.startswith("grad")):
            room[name] += own  # the result itself is rounded, or what is added up was
    return room | dict.fromkeys(("again", "counted", "touched"), 0.5)


def _size(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())
