"""Strips: only the kernel's rows are written out, and one overlapping batched GEMM reads whole windows from them."""

from __future__ import annotations

from typing import ClassVar

import torch

from ..problem import ConvProblem
from .base import common_reasons, compute_dtype, element_bytes, pixels
from .correlating import Correlating, Pair


class Strips(Correlating):
    """Columns at a `kw`-th of their size.

    For each output row the `kh` input rows it needs are stored interleaved, (width, kh, channels). A window is then
    `kw * kh * channels` neighbours, and the window of the next pixel begins `stride * kh * channels` further on: they
    overlap. A matrix with overlapping rows is no GEMM operand, but as a batch over the output's columns, with one row
    of the matrix per output row, every row is far enough from the next.
    """

    name: ClassVar[str] = "strips"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve two spatial dimensions without groups and without dilation in width."""
        return common_reasons(problem, dimensions=2, dilation_in_width=False)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Strips of the input or of the gradient, the gradient in NHWC, and one partial weight per output column."""
        kh, kw = problem.kernel
        height, width = problem.output_size
        strips = problem.batch * height * (problem.input_size[1] + 2 * problem.padding[1]) * kh * problem.in_channels
        partial = width * kh * kw * problem.in_channels * problem.out_channels
        weight_pass = strips + partial + pixels(problem) * problem.out_channels
        taps = -(-kh // problem.stride[0])
        rows = -(-problem.input_size[0] // problem.stride[0])
        input_pass = problem.batch * rows * (width + kw) * taps * problem.out_channels
        input_pass += problem.batch * rows * (-(-problem.input_size[1] // problem.stride[1])) * problem.in_channels
        return max(weight_pass, input_pass) * element_bytes(problem)

    def correlate(
        self, x: torch.Tensor, weight: torch.Tensor, stride: Pair, pads: tuple[Pair, Pair], dilation: Pair
    ) -> torch.Tensor:
        """Correlate."""
        out_channels, _, kh, kw = weight.shape
        strips = _strips(x, kh, stride[0], pads, dilation[0])
        windows = _windows(strips, kw, stride[1])
        width, rows, _ = windows.shape
        y = x.new_empty(rows, width, out_channels)
        matrix = weight.permute(3, 2, 1, 0).reshape(-1, out_channels)
        torch.bmm(windows, matrix.expand(width, -1, -1), out=y.transpose(0, 1))
        return y.view(x.shape[0], -1, width, out_channels).permute(0, 3, 1, 2)

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        dtype = compute_dtype(problem)
        (ph, pw), (kh, kw) = problem.padding, problem.kernel
        pads = ((ph, ph), (pw, pw))
        strips = _strips(x.to(dtype), kh, problem.stride[0], pads, problem.dilation[0])
        windows = _windows(strips, kw, problem.stride[1])
        rows = grad.to(dtype).permute(0, 2, 3, 1).reshape(-1, windows.shape[0], problem.out_channels)
        matrix = torch.bmm(windows.transpose(1, 2), rows.transpose(0, 1)).sum(0)
        return matrix.view(kw, kh, problem.in_channels, -1).permute(3, 2, 1, 0).to(problem.dtype)


def _strips(x: torch.Tensor, kh: int, stride: int, pads: tuple[Pair, Pair], dilation: int) -> torch.Tensor:
    """Return (samples, output height, padded width, kh, channels): for each output row its `kh` input rows."""
    samples, channels, height, width = x.shape
    (top, bottom), (left, right) = pads
    out_height = (height + top + bottom - dilation * (kh - 1) - 1) // stride + 1
    strips = x.new_empty(samples, out_height, left + width + right, kh, channels)
    image = x.permute(0, 2, 3, 1)
    if left:
        strips[:, :, :left].zero_()
    if right:
        strips[:, :, left + width :].zero_()
    for tap in range(kh):
        # Output row h reads input row h * stride + tap * dilation - top, where there is one.
        shift = tap * dilation - top
        first = min(max(0, -(shift // stride)), out_height)
        last = max(first, min(out_height, (height - 1 - shift) // stride + 1))
        strips[:, :first, :, tap].zero_()
        strips[:, last:, :, tap].zero_()
        if last > first:
            start = first * stride + shift
            rows = image[:, start : start + (last - first - 1) * stride + 1 : stride]
            strips[:, first:last, left : left + width, tap].copy_(rows)
    return strips


def _windows(strips: torch.Tensor, kw: int, stride: int) -> torch.Tensor:
    """View strips as (output width, samples * output height, kw * kh * channels), without a copy."""
    samples, height, width, kh, channels = strips.shape
    cell = kh * channels
    out_width = (width - kw) // stride + 1
    return strips.as_strided((out_width, samples * height, kw * cell), (stride * cell, width * cell, 1))
