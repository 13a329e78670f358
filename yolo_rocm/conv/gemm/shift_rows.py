"""Shifted GEMMs: the padded image itself is the operand, once per kernel row; there are no columns at all."""

from __future__ import annotations

from typing import ClassVar

import torch

from ...engines.products import product
from ..base import common_reasons, element_bytes, padded_pixels
from ..problem import ConvProblem
from .correlating import Correlating, Window


class ShiftRows(Correlating):
    """One batched GEMM per kernel row, reading `kw * channels` neighbours of the padded NHWC image.

    Rows of all samples form one long matrix; rows that reach over a sample's end are computed and dropped.
    """

    name: ClassVar[str] = "shift_rows"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support two spatial dimensions without groups and without dilation in width."""
        return common_reasons(problem, dimensions=2, dilation_in_width=False)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """The padded image, the result with the rows to drop, and partial weights per output column."""
        kh, kw = problem.kernel
        rows = problem.batch * (problem.output_size[0] + kh)
        image = (padded_pixels(problem) + problem.batch * 2 * problem.stride[0] * problem.input_size[1]) * 2
        result = rows * problem.output_size[1] * problem.out_channels
        partial = kh * kw * problem.output_size[1] * problem.in_channels * problem.out_channels
        input_pass = 2 * padded_pixels(problem) * max(problem.in_channels, problem.out_channels)
        return max(image * problem.in_channels + result + partial, input_pass) * element_bytes(problem)

    def correlate(self, x: torch.Tensor, weight: torch.Tensor, window: Window) -> torch.Tensor:
        """Correlate."""
        out_channels, _, kh, _ = weight.shape
        image, (height, width) = _padded(x, window), window.output_size(x)
        rows = image.shape[0] * image.shape[1] // window.stride[0]
        y = x.new_empty(rows, width, out_channels)
        matrices = weight.permute(2, 3, 1, 0).reshape(kh, 1, -1, out_channels)
        for tap in range(kh):
            operand = _row_windows(image, tap, rows, width, window)
            matrix = matrices[tap].expand(width, -1, -1)
            if tap == 0:
                product(operand, matrix, y.transpose(0, 1))
            else:
                product(operand, matrix, y.transpose(0, 1), add=True)
        return y.view(x.shape[0], -1, width, out_channels)[:, :height].permute(0, 3, 1, 2)

    def correlate_gradient(self, grad: torch.Tensor, x: torch.Tensor, window: Window) -> torch.Tensor:
        """Return the gradient of the kernel."""
        samples, out_channels, height, width = grad.shape
        (kh, kw), channels = window.kernel, x.shape[1]
        image = _padded(x, window)
        rows = image.shape[0] * image.shape[1] // window.stride[0]
        padded = grad.new_zeros(samples, rows // samples, width, out_channels)
        padded[:, :height].copy_(grad.permute(0, 2, 3, 1))  # zeros for the rows to drop
        right = padded.view(rows, width, -1).transpose(0, 1)
        partial = grad.new_empty(kh, width, kw * channels, out_channels)
        for tap in range(kh):
            operand = _row_windows(image, tap, rows, width, window)
            product(operand.transpose(1, 2), right, partial[tap])
        return partial.sum(1).view(kh, kw, channels, -1).permute(3, 2, 0, 1)


def _padded(x: torch.Tensor, window: Window) -> torch.Tensor:
    """Return the padded NHWC image, its height a multiple of the stride, with slack behind it.

    The slack lets the last sample's dropped rows read, like all others, rows that are there.
    """
    samples, channels, height, width = x.shape
    (top, _), (left, _) = window.pads
    tall, wide = window.padded_size(x)
    tall = -(-tall // window.stride[0]) * window.stride[0]
    slack = window.dilation[0] * (window.kernel[0] - 1) * wide * channels
    flat = x.new_zeros(samples * tall * wide * channels + slack)
    image = flat[: samples * tall * wide * channels].view(samples, tall, wide, channels)
    image[:, top : top + height, left : left + width].copy_(x.permute(0, 2, 3, 1))
    return image


def _row_windows(image: torch.Tensor, tap: int, rows: int, width: int, window: Window) -> torch.Tensor:
    """View the image, `tap` kernel rows further on, as (output width, rows, kw * channels)."""
    _, _, wide, channels = image.shape
    row, (sh, sw) = wide * channels, window.stride
    start = image.storage_offset() + tap * window.dilation[0] * row
    return image.as_strided((width, rows, window.kernel[1] * channels), (sw * channels, sh * row, 1), start)
