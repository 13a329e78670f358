"""Planes: the kernel's columns are written out as shifted copies of NCHW planes, its rows are offsets into them."""

from __future__ import annotations

from typing import ClassVar

import torch

from ...engines.products import product
from ..base import common_reasons, compute_dtype, element_bytes, outer_sum, pieces_of
from ..problem import ConvProblem
from .correlating import Correlating, Window


class Planes(Correlating):
    """`kw` shifted copies, then one batched GEMM per kernel row, in NCHW from end to end.

    The copies have the width of the output, so a plane read from `row * width` on is the operand of a kernel row, and
    the result is the NCHW output itself: no transposition, nothing to cut off. A stride in height stores the rows of
    each phase together, a stride in width is part of the copy.
    """

    name: ClassVar[str] = "planes"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support two spatial dimensions without groups."""
        return common_reasons(problem, dimensions=2)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """The shifted copies of the input or of the gradient; partial weights of every sample; the shuffled result."""
        (kh, kw), (height, width) = problem.kernel, problem.output_size
        tall = problem.input_size[0] + 2 * problem.padding[0] + problem.stride[0]
        copies = problem.batch * kw * problem.in_channels * tall * width
        pieces = pieces_of(height * width, compute_dtype(problem))
        partial = problem.batch * pieces * kh * kw * problem.in_channels * problem.out_channels
        taps = -(-kw // problem.stride[1])
        image = (problem.input_size[0] // problem.stride[0] + kh + 1) * (problem.input_size[1] // problem.stride[1] + 1)
        spread = problem.batch * taps * problem.out_channels * image
        shuffled = problem.batch * problem.in_channels * (problem.input_size[0] + 2) * (problem.input_size[1] + 2)
        return max(copies + partial + problem.batch * problem.out_channels * height * width, spread + 2 * shuffled) * (
            element_bytes(problem)
        )

    def correlate(self, x: torch.Tensor, weight: torch.Tensor, window: Window) -> torch.Tensor:
        """Correlate."""
        out_channels, _, kh, _ = weight.shape
        height, width = window.output_size(x)
        planes = _planes(x, window)
        y = x.new_empty(x.shape[0], out_channels, height * width)
        rows = weight.permute(2, 0, 3, 1).reshape(kh, 1, out_channels, -1)
        for tap in range(kh):
            operand = _operand(planes, tap * window.dilation[0], window.stride[0], height * width)
            matrix = rows[tap].expand(x.shape[0], -1, -1)
            if tap == 0:
                product(matrix, operand, y)
            else:
                product(matrix, operand, y, add=True)
        return y.view(x.shape[0], out_channels, height, width)

    def correlate_gradient(self, grad: torch.Tensor, x: torch.Tensor, window: Window) -> torch.Tensor:
        """Return the gradient of the kernel."""
        planes, flat = _planes(x, window), grad.flatten(2)
        shifts = (tap * window.dilation[0] for tap in range(window.kernel[0]))
        rows = [outer_sum(flat, _operand(planes, shift, window.stride[0], flat.shape[2])) for shift in shifts]
        matrix = torch.stack(rows).view(window.kernel[0], grad.shape[1], window.kernel[1], x.shape[1])
        return matrix.permute(1, 3, 0, 2)


def _planes(x: torch.Tensor, window: Window) -> torch.Tensor:
    """Return (samples, kw, channels, phases, rows, output width).

    Row r of phase p of copy j holds, at column w, the padded input at (r * stride + p, w * stride + j * dilation).
    """
    samples, channels, height, width = x.shape
    (kh, kw), (sh, sw), ((top, _), (left, _)), (dh, dw) = window
    out_height, out_width = window.output_size(x)
    rows = out_height + dh * (kh - 1) // sh
    planes = x.new_empty(samples, kw, channels, sh, rows, out_width)
    for phase in range(sh):
        first, last, start = _inside(phase - top, sh, rows, height)
        part = planes[:, :, :, phase]
        if first:
            part[:, :, :, :first].zero_()
        if last < rows:
            part[:, :, :, last:].zero_()
        source = x[:, :, start : start + (last - first - 1) * sh + 1 : sh] if last > first else x[:, :, :0]
        for tap in range(kw):
            copy = part[:, tap, :, first:last]
            begin, end, column = _inside(tap * dw - left, sw, out_width, width)
            if begin:
                copy[..., :begin].zero_()
            if end < out_width:
                copy[..., end:].zero_()
            if end > begin:
                copy[..., begin:end].copy_(source[..., column : column + (end - begin - 1) * sw + 1 : sw])
    return planes


def _inside(shift: int, stride: int, length: int, size: int) -> tuple[int, int, int]:
    """Return which of `length` positions read `position * stride + shift` inside [0, size), and the first one read."""
    first = min(length, max(0, -(shift // stride)))
    last = max(first, min(length, (size - 1 - shift) // stride + 1))
    return first, last, first * stride + shift


def _operand(planes: torch.Tensor, shift: int, stride: int, length: int) -> torch.Tensor:
    """View the planes, `shift` padded rows further on, as (samples, kw * channels, output pixels)."""
    samples, copies, channels, phases, rows, width = planes.shape
    plane = phases * rows * width
    offset = (shift % stride) * rows * width + shift // stride * width
    return planes.as_strided((samples, copies * channels, length), (copies * channels * plane, plane, 1), offset)
