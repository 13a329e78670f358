"""How exact a convolution has to be: at most `MOST_RATIO` times the error of the native kernel, or of a plain sum.

One bound for the tests and for what emulates kernels.
"""

from __future__ import annotations

import math

import torch

from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.engines.measure import MOST_RATIO
from yolo_rocm.engines.names import Pass

__all__ = ["MOST_RATIO", "allowed_error", "in_doubles", "native_passes", "plain_sum_error"]


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
