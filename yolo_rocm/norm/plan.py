"""Normalisation as the engine room's client: how its passes are run, checked and guessed at, and its planner."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import torch

from ..engines.layout import laid_out
from ..engines.measure import relative_error
from ..engines.names import Pass
from ..engines.operator import Operator, Tensors
from ..engines.planner import BasePlanner, Plan
from .algorithms import ALGORITHMS, BY_NAME, NormAlgorithm
from .base import Parameters, Statistics
from .problem import NormProblem

__all__ = ["NORMALISATION", "PASSES", "NormPlan", "NormPlanner", "Operands"]

PASSES: Final = (Pass.FORWARD, Pass.BACKWARD)
_MOMENTUM, _EPS = 0.03, 1e-3  # Ultralytics'
_LESS_ROOM: Final = 300.0  # for statistics next to half precision: 1e-4 where the tuner allows values 3e-2
NormPlan = Plan[NormAlgorithm]


class Operands(NamedTuple):
    """Random tensors of a problem: input, gradient, what the layer holds, and the statistics of the input."""

    x: torch.Tensor
    grad: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    running_mean: torch.Tensor
    running_var: torch.Tensor
    mean: torch.Tensor
    invstd: torch.Tensor

    @classmethod
    def of(cls, problem: NormProblem, seed: int = 0, mean_of_input: float = 0.0) -> Operands:
        """Draw them: another mean and spread for each channel, and a gradient that depends on what is normalised.

        A gradient of pure noise has next to nothing that the statistics take away from it.

        Args:
            problem: The problem.
            seed: Of the random numbers.
            mean_of_input: What the means of the channels lie around.
        """
        device, dtype = torch.device(problem.device), problem.statistics_dtype
        generator = torch.Generator(device=device).manual_seed(seed)

        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(shape, device=device, generator=generator, dtype=dtype)

        per_channel = (1, -1, *[1] * (len(problem.shape) - 2))
        weight, bias, running_mean, shift = (draw(problem.channels) for _ in range(4))
        running_var, spread = (draw(problem.channels).abs_().add_(0.5) for _ in range(2))
        x = draw(*problem.shape)
        grad = draw(*problem.shape).add_(x).add_(1.0)
        x = x.mul_(spread.view(per_channel)).add_(shift.add_(mean_of_input).view(per_channel)).to(problem.dtype)
        if problem.training:
            reduced = [0, *range(2, x.dim())]
            var, mean = torch.var_mean(x.to(dtype), reduced, unbiased=False)
        else:
            mean, var = running_mean.clone(), running_var
        x, grad = (laid_out(each, problem.channels_last) for each in (x, grad.to(problem.dtype)))
        return cls(x, grad, weight, bias, running_mean, running_var, mean, (var + _EPS).rsqrt_())

    def parameters(self, problem: NormProblem, batches: torch.Tensor | None = None) -> Parameters:
        """Return what the layer holds; running statistics of its own, which a forward pass of a training changes."""
        weight, bias = (self.weight, self.bias) if problem.affine else (None, None)
        return Parameters(weight, bias, self.running_mean.clone(), self.running_var.clone(), _MOMENTUM, _EPS, batches)


class Normalisation(Operator[NormProblem, NormAlgorithm]):
    """The operator."""

    name = "norm"
    passes = PASSES
    algorithms = ALGORITHMS

    def preferred(self, problem: NormProblem, which: Pass, engines: Sequence[str]) -> Sequence[str]:
        """Prefer torch's own kernels on a CPU, where they are the fastest, and what fills a GPU there."""
        return ("aten", "torch") if problem.device.startswith("cpu") else ("triton_l", "hip_norm", "torch", "aten")

    def reference(self, problem: NormProblem) -> NormAlgorithm:
        """Return the one in plain PyTorch."""
        return BY_NAME["torch"]

    def operands(self, problem: NormProblem) -> Operands:
        """Return random tensors of a problem."""
        return Operands.of(problem)

    def call(
        self, algorithm: NormAlgorithm, problem: NormProblem, which: Pass, operands: Tensors, budget: int
    ) -> Callable[[], torch.Tensor]:
        """Return a pass as a training runs it; operands stay as they are."""
        o = Operands(*operands)
        p, statistics = o.parameters(problem), Statistics(o.mean, o.invstd)
        wanted = (True, problem.affine, problem.affine)
        passes: Any = algorithm.bound(problem)
        if which == Pass.FORWARD:
            return lambda: passes.forward(o.x, p)[0]
        return lambda: passes.backward(o.grad, o.x, p, statistics, wanted).x

    def run(
        self, algorithm: NormAlgorithm, problem: NormProblem, which: Pass, operands: Tensors, budget: int = 1 << 62
    ) -> torch.Tensor:
        """Run a pass of an algorithm once, and return everything it computes in one tensor; operands stay as they are.

        Forward: the activation, statistics and running statistics, how many values `activate` gives with other bits,
        and how often the batch was counted. Backward: the gradients, and the running statistics, which it leaves alone.
        """
        o = Operands(*operands)
        batches = torch.zeros((), dtype=torch.long, device=o.x.device)
        p = o.parameters(problem, batches)
        parts: list[torch.Tensor | None]
        if which == "forward":
            y, statistics = algorithm.forward(problem, o.x, p)
            parts = [y, *statistics, p.running_mean, p.running_var]
            parts += [(algorithm.activate(problem, o.x, p, statistics) != y).sum(), batches]
        else:
            wanted = (True, problem.affine, problem.affine)
            grads = algorithm.backward(problem, o.grad, o.x, p, Statistics(o.mean, o.invstd), wanted)
            parts = [*grads, p.running_mean, p.running_var, batches]
        return torch.cat([part.flatten().to(o.mean.dtype) for part in parts if part is not None])

    def distance(self, problem: NormProblem, which: Pass, result: torch.Tensor, exact: torch.Tensor) -> float:
        """Return the largest relative error of all that a pass computes; each channel's counts, not their sum alone.

        Statistics are at least fp32 whatever the input is, and so have less room than values in half precision.
        """
        size = problem.rows * problem.channels
        errors = [relative_error(result[:size], exact[:size])]
        sums = 2 if which == Pass.BACKWARD and problem.affine else 0
        channels = (result.numel() - size) // problem.channels
        strict = 1.0 if problem.dtype == problem.statistics_dtype else _LESS_ROOM
        for index in range(channels):
            part = slice(size + index * problem.channels, size + (index + 1) * problem.channels)
            ours, theirs = result[part].double(), exact[part].double()
            largest = (ours - theirs).abs().max() / theirs.square().mean().sqrt().clamp_min(1e-30)
            errors.append(float(largest) * (1.0 if index < sums else strict))
        counts = slice(size + channels * problem.channels, None)
        errors.append(float((result[counts].double() - exact[counts].double()).abs().sum()))
        return math.nan if any(math.isnan(error) for error in errors) else max(errors)

    def cast(self, problem: NormProblem, dtype: torch.dtype, device: str) -> NormProblem:
        """Return the same problem in another data type, on another device."""
        return replace(problem, dtype=dtype, device=device)

    def small(self, problem: NormProblem, kernel: str) -> NormProblem:
        """Return a problem with odd sizes that a kernel supports, and whose sums it splits over several programs."""
        return replace(problem, shape=(5, 20, 65, 67))


NORMALISATION = Normalisation()


class NormPlanner(BasePlanner[NormProblem, NormAlgorithm]):
    """Chooses algorithms for normalisations."""

    operator = NORMALISATION
