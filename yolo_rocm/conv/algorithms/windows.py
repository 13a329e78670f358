"""Windows of a zero-padded input as one strided view: convolution in any number of dimensions."""

from __future__ import annotations

import itertools
import math
from typing import ClassVar

import torch
import torch.nn.functional as F

from ..problem import ConvProblem
from .base import Algorithm, batch_slices, column_bytes, compute_dtype, dtype_reasons, element_bytes


class Windows(Algorithm):
    """Copy the windows once into (groups, in * kernel, samples * pixels) and multiply all samples in one GEMM.

    grad-input adds each kernel position's columns into a padded gradient: as many additions as the kernel has
    positions, never one per sample or group.
    """

    name: ClassVar[str] = "windows"
    engine: ClassVar[str] = "gemm"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve everything that is not transposed."""
        return [*dtype_reasons(problem), *(["transposed"] if problem.transposed else [])]

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Columns, the padded input and the result before it is put in order, of the whole batch."""
        return problem.batch * _bytes_per_sample(problem)

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, budget: int
    ) -> torch.Tensor:
        """Compute the output."""
        dtype, groups = compute_dtype(problem), problem.groups
        matrix = weight.reshape(groups, problem.out_channels // groups, -1).to(dtype)
        out = torch.empty(problem.output_shape, dtype=problem.dtype, device=x.device)
        for part in batch_slices(problem, _bytes_per_sample(problem), budget):
            flat = torch.bmm(matrix, _columns(problem, x[part].to(dtype)))
            out[part] = flat.view(problem.out_channels, -1, *problem.output_size).transpose(0, 1)
        return out if bias is None else out.add_(bias.view(-1, *[1] * len(problem.kernel)))

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor, budget: int) -> torch.Tensor:
        """Compute the gradient of the input."""
        dtype, groups = compute_dtype(problem), problem.groups
        matrix = weight.reshape(groups, problem.out_channels // groups, -1).to(dtype).transpose(1, 2)
        out = torch.empty(problem.input_shape, dtype=problem.dtype, device=grad.device)
        # Rounding once per kernel position would cost half precision its last digits.
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        padded = [i + 2 * p for i, p in zip(problem.input_size, problem.padding, strict=True)]
        spatial = (slice(p, p + i) for i, p in zip(problem.input_size, problem.padding, strict=True))
        inner = (slice(None), slice(None), *spatial)
        for part in batch_slices(problem, _bytes_per_sample(problem), budget):
            pixels = grad[part].to(dtype).transpose(0, 1)
            samples = pixels.shape[1]
            columns = torch.bmm(matrix, pixels.reshape(groups, problem.out_channels // groups, -1))
            columns = columns.view(problem.in_channels, -1, samples, *problem.output_size)
            total = torch.zeros(problem.in_channels, samples, *padded, dtype=wide, device=grad.device)
            for number, position in enumerate(itertools.product(*map(range, problem.kernel))):
                total[_window(problem, position)] += columns[:, number]
            out[part] = total[inner].transpose(0, 1)
        return out

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor, budget: int) -> torch.Tensor:
        """Compute the gradient of the weight."""
        dtype, groups = compute_dtype(problem), problem.groups
        total: torch.Tensor | None = None
        for part in batch_slices(problem, _bytes_per_sample(problem), budget):
            pixels = grad[part].to(dtype).transpose(0, 1).reshape(groups, problem.out_channels // groups, -1)
            partial = torch.bmm(pixels, _columns(problem, x[part].to(dtype)).transpose(1, 2))
            total = partial if total is None else total.add_(partial)
        assert total is not None  # an empty batch never gets here
        return total.view(problem.weight_shape).to(problem.dtype)


def _columns(problem: ConvProblem, x: torch.Tensor) -> torch.Tensor:
    """Return (groups, in / groups * kernel, samples * pixels) by one strided copy."""
    pads = [p for padding in reversed(problem.padding) for p in (padding, padding)]
    padded = F.pad(x, pads) if any(pads) else x
    steps = padded.stride()
    samples, spatial = x.shape[0], steps[2:]
    view = padded.as_strided(
        (problem.in_channels, *problem.kernel, samples, *problem.output_size),
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


def _bytes_per_sample(problem: ConvProblem) -> int:
    padded = math.prod(i + 2 * p for i, p in zip(problem.input_size, problem.padding, strict=True))
    image = problem.in_channels * padded + problem.out_channels * math.prod(problem.output_size)
    return column_bytes(problem) + image * max(4, element_bytes(problem))
