"""1x1 convolution: the image already is the matrix, one batched GEMM and no copy."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from ...engines.products import product
from ..base import Algorithm, common_reasons, compute_dtype, element_bytes, outer_sum, pieces_of, split_k
from ..problem import ConvProblem, suggests_channels_last


class Pointwise(Algorithm):
    """Multiply the channel matrix with every pixel; strides only choose which pixels."""

    name: ClassVar[str] = "pointwise"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support 1x1 kernels without padding and groups."""
        reasons = common_reasons(problem)
        if math.prod(problem.kernel) != 1:
            reasons.append(f"kernel {problem.kernel} is not 1x1")
        if any(problem.padding):
            reasons.append(f"padding {problem.padding} is not 0")
        return reasons

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """A strided convolution copies the pixels it uses; grad-weight holds one partial result per sample."""
        pixels = math.prod(problem.output_size) if max(problem.stride) > 1 else 0
        pieces = pieces_of(math.prod(problem.output_size), compute_dtype(problem))
        partial = problem.in_channels * problem.out_channels * pieces
        return problem.batch * (pixels * problem.in_channels + partial) * element_bytes(problem)

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        dtype = compute_dtype(problem)
        used, matrix = _used_pixels(problem, x).to(dtype), _matrix(problem, weight).to(dtype)
        offset = None if bias is None else bias.to(dtype)
        if suggests_channels_last(used):
            rows = _rows(used)
            return _image(product(rows, matrix.t(), offset=offset), problem.output_shape).to(problem.dtype)
        # bmm with a stride-0 batch: `matrix @ pixels` would clone the pixels and the result.
        weights = matrix.expand(problem.batch, -1, -1)
        pixels = used.flatten(2)
        flat = product(weights, pixels)
        if offset is not None:
            flat.add_(offset.view(-1, 1))
        return flat.view(problem.output_shape).to(problem.dtype)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        dtype = compute_dtype(problem)
        grad, matrix = grad.to(dtype), _matrix(problem, weight).to(dtype)
        shape = (problem.batch, problem.in_channels, *problem.output_size)
        if suggests_channels_last(grad):
            used = _image(product(_rows(grad), matrix), shape)
        else:
            used = product(matrix.t().expand(problem.batch, -1, -1), grad.flatten(2)).view(shape)
        if max(problem.stride) == 1:
            return used.to(problem.dtype)
        full = torch.zeros(problem.input_shape, dtype=problem.dtype, device=grad.device)
        _used_pixels(problem, full).copy_(used)
        return full

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        dtype = compute_dtype(problem)
        grad, used = grad.to(dtype), _used_pixels(problem, x).to(dtype)
        if suggests_channels_last(grad) and suggests_channels_last(used):
            matrix = split_k(_rows(grad), _rows(used))
        else:
            matrix = outer_sum(grad.flatten(2), used.flatten(2))
        return matrix.view(problem.weight_shape).to(problem.dtype)


def _matrix(problem: ConvProblem, weight: torch.Tensor) -> torch.Tensor:
    return weight.reshape(problem.out_channels, problem.in_channels)


def _used_pixels(problem: ConvProblem, x: torch.Tensor) -> torch.Tensor:
    if max(problem.stride) == 1:
        return x
    used = (slice(None), slice(None), *(slice(None, None, s) for s in problem.stride))
    return x[used]


def _rows(x: torch.Tensor) -> torch.Tensor:
    """View a channels_last image as one row of channels per pixel."""
    return x.movedim(1, -1).reshape(-1, x.shape[1])


def _image(rows: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """View rows of channels as a channels_last image of `shape`."""
    return rows.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
