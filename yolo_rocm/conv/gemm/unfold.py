"""im2col in NCHW: write out every input window as a column, multiply once per sample in one batch, drop the columns."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F

from ...engines.products import product
from ..base import Algorithm, add_bias, common_reasons, compute_dtype, element_bytes, outer_sum, pieces_of, pixels
from ..problem import ConvProblem


class Unfold(Algorithm):
    """`F.unfold` + batched GEMM, `F.fold` for grad-input, for one and two spatial dimensions and any groups.

    Columns are made again in backward instead of being kept: they are `kernel` times the size of the input. The batched
    GEMM takes the weight with a batch stride of 0; `matmul` of a matrix with a batch would copy the columns first.
    """

    name: ClassVar[str] = "unfold"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support everything with one or two spatial dimensions that is not transposed."""
        reasons = common_reasons(problem, groups=True)
        if len(problem.kernel) > 2:
            reasons.append(f"{len(problem.kernel)} spatial dimensions, F.unfold has 2")
        return reasons

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """The columns, one partial weight per sample, and copies of operands that are not contiguous."""
        columns = pixels(problem) * problem.in_channels * math.prod(problem.kernel)
        pieces = pieces_of(math.prod(problem.output_size), compute_dtype(problem))
        partial = problem.batch * pieces * math.prod(problem.weight_shape)
        copies = math.prod(problem.input_shape) + math.prod(problem.output_shape)
        return (columns + partial + copies) * element_bytes(problem)

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        dtype, groups = compute_dtype(problem), problem.groups
        columns = _columns(problem, x.to(dtype))
        matrix = _matrix(problem, weight).to(dtype)
        if groups == 1:
            flat = product(matrix.expand(problem.batch, -1, -1), columns)
        else:
            flat = product(matrix, columns.view(problem.batch, groups, -1, columns.shape[-1]))
        return add_bias(flat.view(problem.output_shape), None if bias is None else bias.to(dtype)).to(problem.dtype)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        dtype, groups = compute_dtype(problem), problem.groups
        matrix = _matrix(problem, weight).to(dtype).transpose(-1, -2)
        flat = grad.to(dtype).reshape(problem.batch, problem.out_channels, -1)
        if groups == 1:
            columns = product(matrix.expand(problem.batch, -1, -1), flat)
        else:
            columns = product(matrix, flat.view(problem.batch, groups, -1, flat.shape[-1])).flatten(1, 2)
        size = (1, *problem.input_size)[-2:]
        return F.fold(columns, size, *_two_dimensional(problem)).view(problem.input_shape).to(problem.dtype)

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        dtype, groups = compute_dtype(problem), problem.groups
        columns = _columns(problem, x.to(dtype))
        flat = grad.to(dtype).reshape(problem.batch, problem.out_channels, -1)
        if groups == 1:
            return outer_sum(flat, columns).view(problem.weight_shape).to(problem.dtype)
        columns = columns.reshape(problem.batch * groups, -1, flat.shape[-1])
        flat = flat.reshape(problem.batch * groups, -1, flat.shape[-1])
        partial = product(flat, columns.transpose(1, 2)).reshape(problem.batch, *problem.weight_shape)
        return partial.sum(0).to(problem.dtype)


def _columns(problem: ConvProblem, x: torch.Tensor) -> torch.Tensor:
    """Return (samples, channels * kernel, pixels)."""
    return F.unfold(x if x.dim() == 4 else x.unsqueeze(2), *_two_dimensional(problem))


def _matrix(problem: ConvProblem, weight: torch.Tensor) -> torch.Tensor:
    """Weight as (out, in * kernel), or (groups, out / groups, in / groups * kernel)."""
    if problem.groups == 1:
        return weight.reshape(problem.out_channels, -1)
    return weight.reshape(problem.groups, problem.out_channels // problem.groups, -1)


def _two_dimensional(problem: ConvProblem) -> tuple[tuple[int, ...], ...]:
    """Return kernel, dilation, padding and stride as F.unfold takes them; a 1-D problem is one row high."""
    fields = ((problem.kernel, 1), (problem.dilation, 1), (problem.padding, 0), (problem.stride, 1))
    return tuple((neutral, *values)[-2:] for values, neutral in fields)
