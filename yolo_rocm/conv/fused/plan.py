"""Convolution with activation as the engine room's client: how it is run, checked and guessed at, and its planner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ...engines.names import Pass
from ...engines.operator import Operator, Tensors
from ...engines.planner import BasePlanner
from ..heuristics import preferred
from ..hip.heuristics import preferred as hip_preferred
from ..plan import CONVOLUTION
from ..plan import Operands as ConvOperands
from ..problem import ConvProblem
from .algorithms import FUSED_ALGORITHMS, Separate
from .base import NAME, FusedAlgorithm
from .problem import FusedProblem

FORWARD = Pass.FORWARD


class Operands(NamedTuple):
    """Random tensors of a problem: input, weight and bias."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor

    @classmethod
    def of(cls, problem: FusedProblem, seed: int = 0) -> Operands:
        """Draw them."""
        conv = problem.conv
        x, weight, grad = ConvOperands.of(conv, seed)
        return cls(x, weight, grad[0, :, 0, 0].clone())


class FusedConvolution(Operator[FusedProblem, FusedAlgorithm]):
    """The operator."""

    name = NAME
    passes = (FORWARD,)
    algorithms = FUSED_ALGORITHMS

    def preferred(self, problem: FusedProblem, which: Pass, engines: Sequence[str]) -> Sequence[str]:
        """Return names of algorithms, best guess first: compiled ones write once what others write three times."""
        guesses = list(preferred(problem.conv, FORWARD, triton=False))
        if "hip" in engines:
            guesses = [*hip_preferred(problem.conv, FORWARD), *guesses]
        if "triton" in engines:
            guesses = [*preferred(problem.conv, FORWARD, triton=True), *guesses]
        return guesses

    def reference(self, problem: FusedProblem) -> FusedAlgorithm:
        """Return the plain sum, then the activation."""
        inner = CONVOLUTION.reference(problem.conv).name
        return next(a for a in FUSED_ALGORITHMS if isinstance(a, Separate) and a.name == inner)

    def operands(self, problem: FusedProblem) -> Operands:
        """Return random tensors of a problem."""
        return Operands.of(problem)

    def call(
        self, algorithm: FusedAlgorithm, problem: FusedProblem, which: Pass, operands: Tensors, budget: int
    ) -> Callable[[], torch.Tensor]:
        """Return the pass as a network runs it."""
        x, weight, bias = operands
        run, added = algorithm.bound(problem, budget), bias if problem.bias else None
        return lambda: run(x, weight, added)

    def cast(self, problem: FusedProblem, dtype: torch.dtype, device: str) -> FusedProblem:
        """Return the same problem in another data type, on another device."""
        return problem.of(CONVOLUTION.cast(problem.conv, dtype, device))

    def small(self, problem: FusedProblem, kernel: str) -> FusedProblem:
        """Return a problem with odd sizes and a stride that a kernel supports."""
        return problem.of(CONVOLUTION.small(problem.conv, kernel))

    def one_sample(self, problem: FusedProblem) -> FusedProblem:
        """Return the problem with a batch of one."""
        return problem.of(CONVOLUTION.one_sample(problem.conv))

    def smallest_workspace(self, algorithm: FusedAlgorithm, problem: FusedProblem) -> int:
        """Return the workspace of one row of one sample."""
        return algorithm.smallest_workspace(problem) if isinstance(algorithm, Separate) else 0


FUSED = FusedConvolution()


class FusedPlanner(BasePlanner[FusedProblem, FusedAlgorithm]):
    """Chooses algorithms for convolutions with their activations."""

    operator = FUSED


def supports(problem: ConvProblem) -> bool:
    """Return whether a convolution is one that this operator takes: two dimensions, not transposed, not empty."""
    return len(problem.kernel) == 2 and not problem.transposed and not problem.problems() and not problem.empty
