"""BatchNorm calls of tests: tensors, fp64 results to compare with, and algorithms alone."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

from yolo_rocm.engines.layout import is_channels_last, laid_out
from yolo_rocm.norm.base import Parameters
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.problem import LEAKY_RELU, RELU, SILU, NormProblem

MOMENTUM, EPS = 0.03, 1e-3


class Only(NormPlanner):
    """A planner that knows one algorithm, or one for each pass."""

    def __init__(self, *algorithms, device="cpu") -> None:
        super().__init__("auto", remember=False)
        self._only = algorithms

    def candidates(self, problem):
        """Return them where they support the problem."""
        return [a for a in self._only if not a.not_supported_reasons(problem)]


def drawn(problem: NormProblem, mean: float = 0.0, std: float = 1.0, seed: int = 0, parameters=None) -> dict:
    """Return the tensors of a call; `parameters` is the data type of weight and bias, fp32 or wider by default."""
    generator = torch.Generator().manual_seed(seed)
    dtype = parameters or problem.statistics_dtype
    shape, channels = problem.shape, problem.channels

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    x = draw(*shape) * std + mean
    found = {
        "x": x,
        "grad": draw(*shape),
        "weight": draw(channels) if problem.affine else None,
        "bias": draw(channels) if problem.affine else None,
        "running_mean": draw(channels),
        "running_var": draw(channels).abs() + 0.5,
    }
    wide = {name: None if value is None else value.to(dtype) for name, value in found.items()}
    for name in ("x", "grad"):
        wide[name] = laid_out(found[name].to(problem.dtype), problem.channels_last)
    return {name: None if t is None else t.to(problem.device) for name, t in wide.items()}


def activation_of(problem: NormProblem, z: torch.Tensor) -> torch.Tensor:
    """Return the activation of a normalised value."""
    if problem.activation == SILU:
        return F.silu(z)
    if problem.activation == RELU:
        return F.relu(z)
    return F.leaky_relu(z, problem.slope) if problem.activation == LEAKY_RELU else z


def in_fp64(problem: NormProblem, tensors: dict) -> dict[str, torch.Tensor]:
    """Return all results of a call in fp64, by autograd through the definition."""
    wide = {name: None if t is None else t.detach().double().cpu() for name, t in tensors.items()}
    leaves = {name: t.requires_grad_() for name in ("x", "weight", "bias") if (t := wide[name]) is not None}
    x = leaves["x"]
    per_channel = (1, -1, *[1] * (x.dim() - 2))
    mean, var = wide["running_mean"], wide["running_var"]
    if problem.training:
        reduced = [0, *range(2, x.dim())]
        mean = x.mean(reduced)
        var = (x - mean.view(per_channel)).square().mean(reduced)
    invstd = (var + EPS).rsqrt()
    z = (x - mean.view(per_channel)) * invstd.view(per_channel)
    if problem.affine:
        z = z * leaves["weight"].view(per_channel) + leaves["bias"].view(per_channel)
    y = activation_of(problem, z)
    grads = torch.autograd.grad(y, list(leaves.values()), wide["grad"])
    results = {"y": y, "mean": mean, "invstd": invstd, **{f"grad_{k}": g for k, g in zip(leaves, grads, strict=True)}}
    if problem.training and wide["running_mean"] is not None and problem.rows > 1:
        rows = problem.rows
        unbiased = var * rows / (rows - 1)
        results["running_mean"] = wide["running_mean"] * (1 - MOMENTUM) + MOMENTUM * mean
        results["running_var"] = wide["running_var"] * (1 - MOMENTUM) + MOMENTUM * unbiased
    return {name: value.detach() for name, value in results.items()}


def computed(algorithm, problem: NormProblem, tensors: dict) -> dict[str, torch.Tensor]:
    """Return all results of an algorithm; the tensors stay as they are."""
    held = {name: None if t is None else t.clone() for name, t in tensors.items()}
    batches = torch.zeros((), dtype=torch.long, device=tensors["x"].device)
    own = [held[name] for name in ("weight", "bias", "running_mean", "running_var")]
    p = Parameters(*own, MOMENTUM, EPS, batches)
    x, grad = tensors["x"], tensors["grad"]
    y, statistics = algorithm.forward(problem, x, p)
    kept = [None if t is None else t.clone() for t in own]
    again = algorithm.activate(problem, x, p, statistics)
    assert torch.equal(again, y)
    wanted = (True, problem.affine, problem.affine)
    grads = algorithm.backward(problem, grad, x, p, statistics, wanted)
    assert torch.equal(x, tensors["x"])
    assert torch.equal(grad, tensors["grad"])
    for now, before in zip(own, kept, strict=True):  # neither activate nor backward updates anything
        assert now is None or torch.equal(now.nan_to_num(), before.nan_to_num())
    assert int(batches) == (1 if problem.training else 0)
    results = {"y": y, "mean": statistics.mean, "invstd": statistics.invstd}
    results |= {f"grad_{name}": g for name, g in zip(("x", "weight", "bias"), grads, strict=True) if g is not None}
    if problem.training and held["running_mean"] is not None:
        results |= {"running_mean": held["running_mean"], "running_var": held["running_var"]}
    return {name: value.cpu() for name, value in results.items()}


# Roundings of what sums are computed in. torch's own on a CPU are plain ones where one thread adds up channels_last.
ROUNDINGS = {"gemm": 8.0, "triton": 16.0, "hip": 32.0, "aten": 200.0, "vendor": 200.0}


def assert_exact(algorithm, problem, tensors, exact=None):
    """Check everything against fp64: a few roundings, times what a large mean costs any algorithm."""
    # torch's own compute here without the seam, also where an old torch gives no way to them behind it.
    assert algorithm.engine in ("aten", "vendor") or algorithm.not_supported_reasons(problem) == []
    exact = exact or in_fp64(problem, tensors)
    results = computed(algorithm, problem, tensors)
    x = tensors["x"].double().cpu()
    # A value of fp32 has lost this much of what is left when its mean is taken away.
    mean = x.mean([0, *range(2, x.dim())])
    lost = float((1 + mean.abs() * exact["invstd"]).max()) if problem.training else 3.0
    own, wide = (torch.finfo(dtype).eps for dtype in (problem.dtype, problem.statistics_dtype))
    usual = {"y": 1.0, "grad_x": float(exact["invstd"].max())}
    assert results.keys() >= exact.keys()
    for name, result in ((name, results[name]) for name in exact):
        size = max(_size(exact[name]), usual.get(name, problem.rows**0.5 if name.startswith("grad") else 0.0))
        room = ROUNDINGS[algorithm.engine] * wide * (lost if name not in ("mean", "running_mean") else 1.0)
        if name in usual or (own > wide and name.startswith("grad")):  # sums over gradients that were rounded
            room += own
        error = _size(result.double() - exact[name]) / size
        assert error <= room, (algorithm.name, str(problem), name, error, room)
        if name in usual:
            assert result.dtype == problem.dtype
            assert is_channels_last(result) == is_channels_last(tensors["x"])
    return results, exact


def _size(values):
    return float(values.square().mean().sqrt())


def made(shape=(4, 6, 9, 7), dtype=torch.float32, **options) -> NormProblem:
    """Return a problem on the CPU."""
    return replace(NormProblem(shape, dtype, "cpu"), **options)
