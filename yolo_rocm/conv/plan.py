"""Convolution as the engine room's client: how its passes are run, checked and guessed at, and its planner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ..engines.names import Pass
from ..engines.operator import Operator, Tensors
from ..engines.planner import DEFAULT_TUNE_SECONDS, BasePlanner, Plan
from . import chunking
from .algorithms import ALGORITHMS, INFERENCE_ALGORITHMS, Algorithm
from .heuristics import preferred
from .hip.heuristics import preferred as hip_preferred
from .names import INFERENCE, PASSES, TRAINING
from .problem import ConvProblem, laid_out

__all__ = ["CONVOLUTION", "DEFAULT_TUNE_SECONDS", "ConvPlan", "Operands", "Planner"]

ConvPlan = Plan[Algorithm]
# (input channels, output channels, groups, stride) of the small problem that a kernel is qualified on
_SMALL = {
    "flat": (3, 20, 1, 2),
    "depthwise": (24, 24, 24, 2),
    "hip_few": (3, 20, 1, 2),
    "hip_direct": (24, 24, 24, 2),
    "hip_winograd_kernel": (24, 40, 1, 1),
}
_SMALL_GEMM = (24, 40, 1, 2)


class Operands(NamedTuple):
    """Random tensors of a problem: input, weight and gradient of the output."""

    x: torch.Tensor
    weight: torch.Tensor
    grad: torch.Tensor

    @classmethod
    def of(cls, problem: ConvProblem, seed: int = 0) -> Operands:
        """Draw them."""
        device = torch.device(problem.device)
        generator = torch.Generator(device=device).manual_seed(seed)

        def draw(shape: tuple[int, ...], scale: float = 1.0) -> torch.Tensor:
            values = torch.randn(shape, device=device, generator=generator).mul_(scale).to(problem.dtype)
            return laid_out(values, problem.channels_last)

        return cls(draw(problem.input_shape), draw(problem.weight_shape, 0.05), draw(problem.output_shape))


class Convolution(Operator[ConvProblem, Algorithm]):
    """The operator."""

    name = TRAINING
    passes: tuple[Pass, ...] = PASSES
    algorithms = ALGORITHMS

    def preferred(self, problem: ConvProblem, which: Pass, engines: Sequence[str]) -> Sequence[str]:
        """Return names of algorithms for one pass, best guess first."""
        compiled = [engine for engine in ("triton", "hip") if engine in engines and "gemm" not in engines]
        if not compiled:
            return preferred(problem, which)
        triton = preferred(problem, which, triton=True) if "triton" in compiled else ()
        return (*triton, *(hip_preferred(problem, which) if "hip" in compiled else ()))

    def reference(self, problem: ConvProblem) -> Algorithm:
        """Return the plain sum."""
        name = "transposed" if problem.transposed else "windows"
        return next(algorithm for algorithm in ALGORITHMS if algorithm.name == name)

    def operands(self, problem: ConvProblem) -> Operands:
        """Return random tensors of a problem."""
        return Operands.of(problem)

    def call(
        self, algorithm: Algorithm, problem: ConvProblem, which: Pass, operands: Tensors, budget: int
    ) -> Callable[[], torch.Tensor]:
        """Return a pass as the seam runs it, chunking included, into the layout the seam returns."""
        x, weight, grad = operands
        forward, backward = chunking.fitted(algorithm, problem, budget)
        last = problem.channels_last
        if which == "forward":
            bias = grad[0].flatten(1)[:, 0].contiguous() if problem.bias else None  # random as any
            return lambda: laid_out(forward(x, weight, bias), last)
        wanted = (which == Pass.GRAD_INPUT, which == Pass.GRAD_WEIGHT)
        index = wanted.index(True)

        def run() -> torch.Tensor:
            result: Any = backward(grad, x, weight, wanted)[index]
            return laid_out(result, last)

        return run

    def cast(self, problem: ConvProblem, dtype: torch.dtype, device: str) -> ConvProblem:
        """Return the same problem in another data type, on another device."""
        return replace(problem, dtype=dtype, device=device)

    def small(self, problem: ConvProblem, kernel: str) -> ConvProblem:
        """Return a problem with odd sizes that a kernel supports, strided where it supports that."""
        channels, out_channels, groups, stride = _SMALL.get(kernel, _SMALL_GEMM)
        return replace(
            problem,
            input_shape=(2, channels, 13, 11),
            weight_shape=(out_channels, channels // groups, 3, 3),
            stride=(stride, stride),
            padding=(1, 1),
            dilation=(1, 1),
            output_padding=(0, 0),
            groups=groups,
            transposed=False,
        )

    def one_sample(self, problem: ConvProblem) -> ConvProblem:
        """Return the problem with a batch of one."""
        return replace(problem, input_shape=(1, *problem.input_shape[1:]))

    def smallest_workspace(self, algorithm: Algorithm, problem: ConvProblem) -> int:
        """Return the workspace of one row of one sample."""
        return chunking.smallest_workspace(algorithm, problem)


class InferenceConvolution(Convolution):
    """Convolution, bias and activation as one, `act(conv(x))`, of a network that only computes: a forward pass alone.

    Kernels with the activation in their epilogue write their result once; of the others torch's activation follows.
    """

    name = INFERENCE
    passes = (Pass.FORWARD,)
    algorithms = INFERENCE_ALGORITHMS

    def preferred(self, problem: ConvProblem, which: Pass, engines: Sequence[str]) -> Sequence[str]:
        """Return names of algorithms, best guess first: compiled ones write once what others write three times."""
        guesses = list(preferred(problem, which))
        if "hip" in engines:
            guesses = [*hip_preferred(problem, which), *guesses]
        return [*preferred(problem, which, triton=True), *guesses] if "triton" in engines else guesses


CONVOLUTION = Convolution()


class Planner(BasePlanner[ConvProblem, Algorithm]):
    """Chooses algorithms for convolutions."""

    operator = CONVOLUTION


class InferencePlanner(Planner):
    """Chooses algorithms for convolutions with their activations, of a network that only computes."""

    operator = InferenceConvolution()
