"""Shifted GEMMs: the padded image itself is the operand, once per kernel row or tap; there are no columns at all."""

from __future__ import annotations

from typing import ClassVar

import torch

from ..problem import ConvProblem
from .base import common_reasons, compute_dtype, element_bytes, padded_pixels
from .correlating import Correlating, Pair


class ShiftRows(Correlating):
    """One batched GEMM per kernel row, reading `kw * channels` neighbours of the padded NHWC image.

    Rows of all samples form one long matrix; rows that reach over a sample's end are computed and dropped.
    """

    name: ClassVar[str] = "shift_rows"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve two spatial dimensions without groups and without dilation in width."""
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

    def correlate(
        self, x: torch.Tensor, weight: torch.Tensor, stride: Pair, pads: tuple[Pair, Pair], dilation: Pair
    ) -> torch.Tensor:
        """Correlate."""
        out_channels, _, kh, kw = weight.shape
        image, (height, width) = _whole_strides(x, (kh, kw), stride, pads, dilation[0])
        rows = image.shape[0] * image.shape[1] // stride[0]
        y = x.new_empty(rows, width, out_channels)
        matrices = weight.permute(2, 3, 1, 0).reshape(kh, 1, -1, out_channels)
        for tap in range(kh):
            operand = _row_windows(image, tap * dilation[0], rows, width, kw, stride)
            matrix = matrices[tap].expand(width, -1, -1)
            if tap == 0:
                torch.bmm(operand, matrix, out=y.transpose(0, 1))
            else:
                y.transpose(0, 1).baddbmm_(operand, matrix)
        return y.view(x.shape[0], -1, width, out_channels)[:, :height].permute(0, 3, 1, 2)

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        dtype = compute_dtype(problem)
        (ph, pw), (sh, sw), (kh, kw), dilation = problem.padding, problem.stride, problem.kernel, problem.dilation[0]
        image, (height, width) = _whole_strides(x.to(dtype), (kh, kw), (sh, sw), ((ph, ph), (pw, pw)), dilation)
        rows = image.shape[0] * image.shape[1] // sh
        padded = grad.new_zeros(problem.batch, rows // problem.batch, width, problem.out_channels, dtype=dtype)
        padded[:, :height].copy_(grad.permute(0, 2, 3, 1))  # zeros for the rows to drop
        right = padded.view(rows, width, -1).transpose(0, 1)
        partial = grad.new_empty(kh, width, kw * problem.in_channels, problem.out_channels, dtype=dtype)
        for tap in range(kh):
            operand = _row_windows(image, tap * dilation, rows, width, kw, (sh, sw))
            torch.bmm(operand.transpose(1, 2), right, out=partial[tap])
        matrix = partial.sum(1).view(kh, kw, problem.in_channels, -1)
        return matrix.permute(3, 2, 0, 1).to(problem.dtype)


class ShiftTaps(Correlating):
    """One GEMM per kernel tap over the channel-major image of all samples: the least memory of all.

    Strided problems are the phases of the padded image, so nothing is computed that a stride skips.
    """

    name: ClassVar[str] = "shift_taps"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve two spatial dimensions without groups and strides, where rounding once per tap does no harm."""
        reasons = common_reasons(problem, dimensions=2)
        if problem.dtype in (torch.float16, torch.bfloat16) and not problem.device.startswith("cpu"):
            reasons.append(f"dtype {problem.dtype} would be rounded once per tap")
        if not reasons and max(problem.stride) > 1:
            reasons.append(f"stride is {problem.stride}, not 1")
        return reasons

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """The padded image, the padded result, and partial weights of a split inner dimension."""
        channels = problem.in_channels + problem.out_channels
        border = problem.batch * max(0, max(problem.kernel) - 1) * max(problem.dilation) * sum(problem.input_size)
        partial = 64 * problem.in_channels * problem.out_channels * problem.kernel[0] * problem.kernel[1]
        return ((padded_pixels(problem) + 2 * border) * channels + partial) * element_bytes(problem)

    def correlate(
        self, x: torch.Tensor, weight: torch.Tensor, stride: Pair, pads: tuple[Pair, Pair], dilation: Pair
    ) -> torch.Tensor:
        """Correlate; `stride` is always 1 here."""
        samples = x.shape[0]
        _, _, kh, kw = weight.shape
        image, height, width = _channel_major(x, pads, ((kh - 1) * dilation[0], (kw - 1) * dilation[1]))
        length = samples * height * width
        taps = weight.permute(2, 3, 0, 1).contiguous()
        y = torch.mm(taps[0, 0], image[:, :length])
        for i in range(kh):
            for j in range(kw):
                if i or j:
                    start = i * dilation[0] * width + j * dilation[1]
                    y.addmm_(taps[i, j], image[:, start : start + length])
        inner = y.view(-1, samples, height, width).transpose(0, 1)
        return inner[:, :, : height - (kh - 1) * dilation[0], : width - (kw - 1) * dilation[1]]

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        dtype = compute_dtype(problem)
        (ph, pw), (kh, kw), (dh, dw) = problem.padding, problem.kernel, problem.dilation
        reach = ((kh - 1) * dh, (kw - 1) * dw)
        image, height, width = _channel_major(x.to(dtype), ((ph, ph), (pw, pw)), reach)
        length = problem.batch * height * width
        right = grad.new_zeros(problem.out_channels, length, dtype=dtype)
        inner = right.view(-1, problem.batch, height, width)
        inner[:, :, : problem.output_size[0], : problem.output_size[1]].copy_(grad.transpose(0, 1))
        slices = max(1, min(64, length // 2048))
        while length % slices:
            slices -= 1
        part = length // slices
        left = right.as_strided((slices, problem.out_channels, part), (part, length, 1))
        partial = grad.new_empty(kh, kw, slices, problem.out_channels, problem.in_channels, dtype=dtype)
        for i in range(kh):
            for j in range(kw):
                start = i * dh * width + j * dw
                shifted = image.as_strided((slices, part, problem.in_channels), (part, 1, image.stride(0)), start)
                torch.bmm(left, shifted, out=partial[i, j])
        return partial.sum(2).permute(2, 3, 0, 1).to(problem.dtype)


def _whole_strides(
    x: torch.Tensor, kernel: Pair, stride: Pair, pads: tuple[Pair, Pair], dilation: int
) -> tuple[torch.Tensor, Pair]:
    """Return the padded NHWC image, its height a multiple of the stride, with slack behind it; and the output's size.

    The slack lets the last sample's dropped rows read, like all others, rows that are there.
    """
    samples, channels, height, width = x.shape
    (top, bottom), (left, right) = pads
    size = (
        (height + top + bottom - dilation * (kernel[0] - 1) - 1) // stride[0] + 1,
        (width + left + right - kernel[1]) // stride[1] + 1,
    )
    tall = -(-(height + top + bottom) // stride[0]) * stride[0]
    wide = width + left + right
    slack = dilation * (kernel[0] - 1) * wide * channels
    flat = x.new_zeros(samples * tall * wide * channels + slack)
    image = flat[: samples * tall * wide * channels].view(samples, tall, wide, channels)
    image[:, top : top + height, left : left + width].copy_(x.permute(0, 2, 3, 1))
    return image, size


def _row_windows(image: torch.Tensor, shift: int, rows: int, width: int, kw: int, stride: Pair) -> torch.Tensor:
    """View the image, `shift` rows further on, as (output width, rows, kw * channels)."""
    _, _, wide, channels = image.shape
    row = wide * channels
    return image.as_strided(
        (width, rows, kw * channels), (stride[1] * channels, stride[0] * row, 1), image.storage_offset() + shift * row
    )


def _channel_major(x: torch.Tensor, pads: tuple[Pair, Pair], reach: Pair) -> tuple[torch.Tensor, int, int]:
    """Return (channels, samples * height * width + slack), zero-padded, and the padded height and width."""
    samples, channels, height, width = x.shape
    (top, bottom), (left, right) = pads
    tall, wide = height + top + bottom, width + left + right
    length = samples * tall * wide
    flat = x.new_zeros(channels, length + reach[0] * wide + reach[1])
    image = flat[:, :length].view(channels, samples, tall, wide)
    image[:, :, top : top + height, left : left + width].copy_(x.transpose(0, 1))
    return flat, tall, wide
