"""What the kernels of BatchNorm should write, in fp64, and the comparison of each result with it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from tools.kernel import Kernel
from tools.running import Outcome, compared
from yolo_rocm.engines.layout import laid_out
from yolo_rocm.norm.problem import SILU, NormProblem

EPS, MOMENTUM = 1e-3, 0.03


class Given(NamedTuple):
    """A layer in fp64, but for what a kernel is given."""

    x: torch.Tensor
    grad: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    running_mean: torch.Tensor
    running_var: torch.Tensor
    mean: torch.Tensor
    invstd: torch.Tensor
    batches: torch.Tensor


@lru_cache(maxsize=8)
def given(problem: NormProblem) -> Given:
    """Return a layer with values of its own."""
    generator = torch.Generator().manual_seed(0)
    channels = problem.channels

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    x = laid_out((drawn(*problem.shape) * 2 + 3 * drawn(1, channels, 1, 1)).to(problem.dtype), problem.channels_last)
    grad = laid_out(drawn(*problem.shape).to(problem.dtype), problem.channels_last)
    mean, variance = x.double().mean((0, 2, 3)), x.double().var((0, 2, 3), unbiased=False)
    weight, bias, running_mean, running_var = (drawn(channels) for _ in range(4))
    invstd = (variance + EPS).rsqrt().float()
    return Given(x, grad, weight, bias, running_mean, running_var.abs() + 0.5, mean.float(), invstd, torch.tensor([41]))


def parts(kernel: Kernel) -> int:
    """Return how many parts a channel has."""
    if kernel.call.kernel.startswith("partial"):
        return int(kernel.call.grid[1])
    return int(kernel.call.numbers[1])


def _part_of(kernel: Kernel) -> torch.Tensor:
    """Return the part that each value of a channel belongs to: samples x pixels."""
    problem: NormProblem = kernel.problem
    batch, pixels = problem.shape[0], problem.pixels
    if kernel.call.kernel.startswith("combine"):  # of whichever parts
        return (torch.arange(problem.rows) % parts(kernel)).view(batch, pixels)
    a, b = (int(kernel.call.constants[name]) for name in ("BLOCK_A", "BLOCK_B"))
    each = int(kernel.call.numbers[4])
    if problem.channels_last:
        return (torch.arange(problem.rows) // a // each).view(batch, pixels)
    tiles = torch.arange(batch)[:, None] // a * -(-pixels // b) + torch.arange(pixels)[None, :] // b
    return tiles // each


def _summed(kernel: Kernel, values: torch.Tensor) -> torch.Tensor:
    """Return the sums of (samples, channels, pixels) over parts: parts x channels."""
    part = _part_of(kernel).flatten()
    flat = values.transpose(0, 1).flatten(1).t()
    return torch.zeros(parts(kernel), flat.shape[1], dtype=torch.float64).index_add_(0, part, flat)


def part_statistics(kernel: Kernel) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return count, mean and sum of squares of each part of each channel."""
    x = given(kernel.problem).x.double().flatten(2)
    count = _summed(kernel, torch.ones_like(x))
    mean = _summed(kernel, x) / count
    part = _part_of(kernel)
    centred = x - mean[part].permute(0, 2, 1)
    return count, mean, _summed(kernel, centred * centred)


class _Terms(NamedTuple):
    """Of the passes, in fp64, each (samples, channels, pixels), with magnitudes of their terms."""

    z: torch.Tensor
    z_size: torch.Tensor
    y: torch.Tensor
    dz: torch.Tensor
    dz_size: torch.Tensor
    centred: torch.Tensor


@lru_cache(maxsize=4)
def _terms(problem: NormProblem) -> _Terms:
    g = given(problem)
    by_channel = [each.double()[:, None] for each in (g.mean, g.invstd, g.weight, g.bias)]
    mean, invstd, weight, bias = by_channel
    centred = g.x.double().flatten(2) - mean
    size = (centred * invstd * weight).abs() + bias.abs()
    z = (centred * invstd * weight + bias).requires_grad_()
    y = torch.nn.functional.silu(z) if problem.activation == SILU else torch.nn.functional.leaky_relu(z, problem.slope)
    grad = g.grad.double().flatten(2)
    (dz,) = torch.autograd.grad(y, z, grad)
    return _Terms(z.detach(), size, y.detach(), dz, grad.abs() * (1 + size), centred)


def part_sums(kernel: Kernel) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return both sums of the gradients of each part of each channel, each with the magnitudes of its terms."""
    t = _terms(kernel.problem)
    pairs = ((t.dz, t.dz_size), (t.dz * t.centred, t.dz_size * t.centred.abs()))
    return [(_summed(kernel, terms), _summed(kernel, sizes)) for terms, sizes in pairs]


def _totals(problem: NormProblem, sizes: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    t = _terms(problem)
    dz, centred = (t.dz_size, t.centred.abs()) if sizes else (t.dz, t.centred)
    return dz.sum((0, 2)), (dz * centred).sum((0, 2))


def coefficients(problem: NormProblem, sizes: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the gradient of the input takes from both sums, or with `sizes` the magnitudes of its terms."""
    g, (total, product) = given(problem), _totals(problem, sizes)
    weight, invstd = g.weight.double(), g.invstd.double()
    weight = weight.abs() if sizes else weight
    return weight * invstd * total / problem.rows, weight * invstd**3 * product / problem.rows


def _rounding(problem: NormProblem) -> tuple[float, float]:
    limits = torch.finfo(problem.dtype)
    return (0.0, 0.0) if problem.dtype == torch.float32 else (limits.eps / 2, limits.tiny)


def vector(got: torch.Tensor, exact: torch.Tensor, size: torch.Tensor, known: torch.Tensor) -> Outcome:
    """Compare what was written of a tensor."""
    return compared(got[known], exact[known], size[known])


def compare_partials(kernel: Kernel, got: torch.Tensor, known: torch.Tensor) -> list[Outcome]:
    """Compare the statistics of parts."""
    count, mean, squares = part_statistics(kernel)
    found = got.double()
    return [
        vector(got[0], count, count * 0 + 1e-9, known[0]),
        vector(found[1] + found[2], mean, mean.abs() + (squares / count).sqrt(), known[1] & known[2]),
        vector(got[3], squares, squares, known[3]),
    ]


def compare_sums(kernel: Kernel, got: torch.Tensor, known: torch.Tensor) -> list[Outcome]:
    """Compare the sums of parts."""
    return [vector(got[i], *both, known[i]) for i, both in enumerate(part_sums(kernel))]


def compare_y(problem: NormProblem, got: torch.Tensor, known: torch.Tensor) -> Outcome:
    """Compare the output."""
    t, flags = _terms(problem), known.flatten(2)
    return compared(got.flatten(2)[flags], t.y[flags], (t.z_size + t.y.abs())[flags], *_rounding(problem))


def compare_dx(problem: NormProblem, got: torch.Tensor, known: torch.Tensor) -> Outcome:
    """Compare the gradient of the input."""
    g, t, flags = given(problem), _terms(problem), known.flatten(2)
    scale = (g.weight.double() * g.invstd.double())[:, None]
    first, second = (each[:, None] for each in coefficients(problem))
    exact = t.dz * scale - first - t.centred * second
    sizes = [each[:, None] for each in coefficients(problem, True)]
    size = t.dz_size * scale.abs() + sizes[0] + t.centred.abs() * sizes[1]
    return compared(got.flatten(2)[flags], exact[flags], size[flags], *_rounding(problem))


def compare_parameters(problem: NormProblem, got: list[torch.Tensor], known: list[torch.Tensor]) -> list[Outcome]:
    """Compare the gradients of weight and bias, the first two."""
    invstd = given(problem).invstd.double()
    (total, product), (total_size, product_size) = _totals(problem), _totals(problem, True)
    return [
        vector(got[0], product * invstd, product_size * invstd, known[0]),
        vector(got[1], total, total_size, known[1]),
    ]


def compare_statistics(problem: NormProblem, got: list[torch.Tensor], known: list[torch.Tensor]) -> list[Outcome]:
    """Compare mean, invstd, (anything), running mean and variance, batches, where the first were written."""
    g = given(problem)
    x = g.x.double()
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    size = mean.abs() + variance.sqrt()
    kept = 1 - MOMENTUM
    exact = kept * g.running_mean.double() + MOMENTUM * mean
    unbiased = variance * problem.rows / (problem.rows - 1)
    flags: Any = known[0]
    counted = got[5] - g.batches - 1
    return [
        vector(got[0], mean, size, known[0]),
        vector(got[1], (variance + EPS).rsqrt(), (variance + EPS).rsqrt(), known[1]),
        vector(got[3], exact, g.running_mean.double().abs() + size, flags),
        vector(got[4], kept * g.running_var.double() + MOMENTUM * unbiased, g.running_var.double() + variance, flags),
        compared(counted.float(), torch.zeros(1, dtype=torch.float64), torch.full((1,), 1e-9, dtype=torch.float64)),
    ]
