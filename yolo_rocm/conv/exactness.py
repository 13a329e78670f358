"""How exact a convolution has to be: at most `MOST_RATIO` times the error of the native kernel, or of a plain sum.

One bound for the tests and for `yolo-rocm certify`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch

from ..engines.measure import MOST_RATIO, relative_error
from ..engines.names import Pass
from .algorithms import Algorithm
from .names import PASSES
from .plan import Operands
from .problem import ConvProblem

__all__ = ["MOST_RATIO", "allowed_error", "error_ratios", "in_doubles", "native_passes", "plain_sum_error"]


def native_passes(problem: ConvProblem, operands: Operands) -> dict[str, torch.Tensor]:
    """Return the three passes as torch computes them."""
    p = problem
    geometry = (p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups)
    y = torch.ops.aten.convolution(operands.x, operands.weight, None, *geometry)
    grads = torch.ops.aten.convolution_backward(
        operands.grad, operands.x, operands.weight, None, *geometry, [True, True, False]
    )
    return dict(zip(PASSES, (y, grads[0], grads[1]), strict=True))


def in_doubles(operands: Operands) -> Operands:
    """Return the same values in fp64."""
    return Operands(operands.x.double(), operands.weight.double(), operands.grad.double())


def plain_sum_error(problem: ConvProblem, which: Pass) -> float:
    """Return what rounding a plain sum of as many terms costs: native kernels get below it on small shapes by luck."""
    direct = problem.direct() if problem.transposed else problem
    taps = math.prod(problem.kernel)
    terms = {
        Pass.FORWARD: taps * direct.weight_shape[1],
        Pass.GRAD_INPUT: taps * direct.weight_shape[0] // problem.groups,
        Pass.GRAD_WEIGHT: direct.batch * math.prod(direct.output_size),
    }
    if problem.transposed:
        terms[Pass.FORWARD], terms[Pass.GRAD_INPUT] = terms[Pass.GRAD_INPUT], terms[Pass.FORWARD]
    return torch.finfo(problem.dtype).eps * max(0.5, 0.15 * math.sqrt(terms[which]))


def allowed_error(problem: ConvProblem, which: Pass, native: float = 0.0) -> float:
    """Return the largest relative error of a pass.

    Args:
        problem: The problem.
        which: The pass.
        native: The native kernel's own error; 0 where there is none to go by.
    """
    return MOST_RATIO * max(native, plain_sum_error(problem, which))


def error_ratios(
    algorithm: Algorithm,
    problem: ConvProblem,
    run: Callable[[Algorithm, ConvProblem, Pass, Operands], torch.Tensor],
    seed: int = 0,
    passes: Iterable[Pass] = PASSES,
    operands: Operands | None = None,
    exact: dict[str, torch.Tensor] | None = None,
) -> dict[Pass, float]:
    """Return, per pass, the error against fp64 over the native kernel's own (or over a plain sum's).

    Args:
        algorithm: What is tried.
        problem: On what.
        run: Computes one pass.
        seed: Of the operands, where none are given.
        passes: Which passes.
        operands: The tensors.
        exact: The passes in fp64, where they are known.
    """
    operands = operands or Operands.of(problem, seed)
    exact = exact or native_passes(problem, in_doubles(operands))
    native = native_passes(problem, operands)
    return {
        which: relative_error(run(algorithm, problem, which, operands), exact[which])
        / max(relative_error(native[which], exact[which]), plain_sum_error(problem, which))
        for which in passes
    }
