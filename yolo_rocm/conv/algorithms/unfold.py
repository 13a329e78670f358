"""im2col: write out every input window as a column, multiply once, and drop the columns."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F

from ..problem import ConvProblem
from .base import Algorithm, batch_slices, column_bytes, compute_dtype, dtype_reasons


class Unfold(Algorithm):
    """`F.unfold` + batched GEMM, `F.fold` for grad-input, for one and two spatial dimensions and any groups.

    Columns are made again in backward instead of being kept: they are `kernel` times the size of the input.
    """

    name: ClassVar[str] = "unfold"
    engine: ClassVar[str] = "gemm"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve everything with one or two spatial dimensions that is not transposed."""
        reasons = dtype_reasons(problem)
        if problem.transposed:
            reasons.append("transposed")
        if len(problem.kernel) > 2:
            reasons.append(f"{len(problem.kernel)} spatial dimensions, F.unfold has 2")
        return reasons

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """The columns of the whole batch."""
        return problem.batch * column_bytes(problem)

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, budget: int
    ) -> torch.Tensor:
        """Compute the output."""
        dtype, groups = compute_dtype(problem), problem.groups
        matrix = _matrix(problem, weight).to(dtype)
        out = torch.empty(problem.output_shape, dtype=problem.dtype, device=x.device)
        for part in batch_slices(problem, column_bytes(problem), budget):
            columns = self._columns(problem, x[part].to(dtype))
            samples = columns.shape[0]
            if groups == 1:
                flat = torch.bmm(matrix.expand(samples, -1, -1), columns)
            else:
                flat = torch.matmul(matrix, columns.view(samples, groups, -1, columns.shape[-1]))
            out[part] = flat.view(out[part].shape)
        return out if bias is None else out.add_(bias.view(-1, *[1] * len(problem.kernel)))

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor, budget: int) -> torch.Tensor:
        """Compute the gradient of the input."""
        dtype, groups = compute_dtype(problem), problem.groups
        matrix = _matrix(problem, weight).to(dtype).transpose(-1, -2)
        out = torch.empty(problem.input_shape, dtype=problem.dtype, device=grad.device)
        geometry = _two_dimensional(problem)
        for part in batch_slices(problem, column_bytes(problem), budget):
            pixels = grad[part].to(dtype).flatten(2)
            samples = pixels.shape[0]
            if groups == 1:
                columns = torch.bmm(matrix.expand(samples, -1, -1), pixels)
            else:
                columns = torch.matmul(matrix, pixels.view(samples, groups, -1, pixels.shape[-1])).flatten(1, 2)
            size = (1, *problem.input_size)[-2:]
            out[part] = F.fold(columns, size, *geometry).view(out[part].shape)
        return out

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor, budget: int) -> torch.Tensor:
        """Compute the gradient of the weight."""
        dtype, groups = compute_dtype(problem), problem.groups
        total: torch.Tensor | None = None
        for part in batch_slices(problem, column_bytes(problem), budget):
            columns = self._columns(problem, x[part].to(dtype)).transpose(1, 2)
            pixels = grad[part].to(dtype).flatten(2)
            samples, length = columns.shape[:2]
            if groups > 1:
                columns = columns.view(samples, length, groups, -1).transpose(1, 2)
                pixels = pixels.view(samples, groups, -1, length)
            partial = torch.matmul(pixels, columns).sum(0)
            total = partial if total is None else total.add_(partial)
        assert total is not None  # an empty batch never gets here
        return total.view(problem.weight_shape).to(problem.dtype)

    @staticmethod
    def _columns(problem: ConvProblem, x: torch.Tensor) -> torch.Tensor:
        """Return (samples, channels * kernel, pixels)."""
        image = x if x.dim() == 4 else x.unsqueeze(2)
        return F.unfold(image, *_two_dimensional(problem))


def _matrix(problem: ConvProblem, weight: torch.Tensor) -> torch.Tensor:
    """Weight as (out, in * kernel), or (groups, out / groups, in / groups * kernel)."""
    if problem.groups == 1:
        return weight.reshape(problem.out_channels, -1)
    return weight.reshape(problem.groups, problem.out_channels // problem.groups, -1)


def _two_dimensional(problem: ConvProblem) -> tuple[tuple[int, ...], ...]:
    """Return kernel, dilation, padding and stride as F.unfold takes them; a 1-D problem is one row high."""
    fields = ((problem.kernel, 1), (problem.dilation, 1), (problem.padding, 0), (problem.stride, 1))
    return tuple((neutral, *values)[-2:] for values, neutral in fields)
