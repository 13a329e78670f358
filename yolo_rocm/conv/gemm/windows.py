"""Windows of a zero-padded input as one strided view: any number of dimensions, any groups, all samples in one GEMM."""

from __future__ import annotations

import itertools
import math
from typing import ClassVar

import torch
import torch.nn.functional as F

from ...engines.products import product
from ..base import Algorithm, add_bias, common_reasons, compute_dtype, element_bytes, padded_pixels, pixels
from ..problem import ConvProblem


class Windows(Algorithm):
    """Copy the windows once into (groups, in * kernel, samples * pixels) and multiply all samples in one GEMM.

    grad-input adds each kernel position's columns into a padded gradient: as many additions as the kernel has
    positions, never one per sample or group.
    """

    name: ClassVar[str] = "windows"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support everything that is not transposed."""
        return common_reasons(problem, groups=True)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Columns, the padded input in full precision, and the result before it is put in order."""
        columns = pixels(problem) * problem.in_channels * math.prod(problem.kernel) * element_bytes(problem)
        image = padded_pixels(problem) * problem.in_channels + pixels(problem) * problem.out_channels
        return columns + image * max(4, element_bytes(problem))

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        dtype = compute_dtype(problem)
        flat = product(_matrix(problem, weight.to(dtype)), _columns(problem, x.to(dtype)))
        y = flat.view(problem.out_channels, problem.batch, *problem.output_size).transpose(0, 1)
        return add_bias(y, None if bias is None else bias.to(dtype)).to(problem.dtype)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        dtype = compute_dtype(problem)
        # Rounding once per kernel position would cost half precision its last digits.
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        columns = product(_matrix(problem, weight.to(dtype)).transpose(1, 2), _rows(problem, grad.to(dtype)))
        columns = columns.view(problem.in_channels, -1, problem.batch, *problem.output_size)
        padded = [i + 2 * p for i, p in zip(problem.input_size, problem.padding, strict=True)]
        total = torch.zeros(problem.in_channels, problem.batch, *padded, dtype=wide, device=grad.device)
        for number, position in enumerate(itertools.product(*map(range, problem.kernel))):
            total[_window(problem, position)] += columns[:, number]
        spatial = (slice(p, p + i) for i, p in zip(problem.input_size, problem.padding, strict=True))
        inner = (slice(None), slice(None), *spatial)
        return total[inner].transpose(0, 1).to(problem.dtype)

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        dtype = compute_dtype(problem)
        matrix = product(_rows(problem, grad.to(dtype)), _columns(problem, x.to(dtype)).transpose(1, 2))
        return matrix.view(problem.weight_shape).to(problem.dtype)


def _matrix(problem: ConvProblem, weight: torch.Tensor) -> torch.Tensor:
    """Return (groups, out / groups, in / groups * kernel)."""
    return weight.reshape(problem.groups, problem.out_channels // problem.groups, -1)


def _rows(problem: ConvProblem, grad: torch.Tensor) -> torch.Tensor:
    """Return (groups, out / groups, samples * pixels)."""
    return grad.transpose(0, 1).reshape(problem.groups, problem.out_channels // problem.groups, -1)


def _columns(problem: ConvProblem, x: torch.Tensor) -> torch.Tensor:
    """Return (groups, in / groups * kernel, samples * pixels) by one strided copy."""
    pads = [p for padding in reversed(problem.padding) for p in (padding, padding)]
    padded = F.pad(x, pads) if any(pads) else x
    steps = padded.stride()
    spatial = steps[2:]
    view = padded.as_strided(
        (problem.in_channels, *problem.kernel, problem.batch, *problem.output_size),
        (
            steps[1],
            *(step * d for step, d in zip(spatial, problem.dilation, strict=True)),
            steps[0],
            *(step * s for step, s in zip(spatial, problem.stride, strict=True)),
        ),
        padded.storage_offset(),
    )
    rows = problem.in_channels // problem.groups * math.prod(problem.kernel)
    return view.reshape(problem.groups, rows, -1)


def _window(problem: ConvProblem, position: tuple[int, ...]) -> tuple[slice, ...]:
    """Slices of a padded (channels, samples, *spatial) tensor that one kernel position reads."""
    spatial = (
        slice(k * d, k * d + (o - 1) * s + 1, s)
        for k, d, o, s in zip(position, problem.dilation, problem.output_size, problem.stride, strict=True)
    )
    return (slice(None), slice(None), *spatial)
