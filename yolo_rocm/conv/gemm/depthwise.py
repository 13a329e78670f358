"""Depthwise convolution: no matrix to multiply, so torch's own kernel, which needs no vendor library."""

from __future__ import annotations

from typing import ClassVar

import torch

from ...engines.products import product
from ..base import Algorithm, common_reasons, compute_dtype, element_bytes, padded_pixels
from ..problem import ConvProblem


class DepthwiseKernel(Algorithm):
    """torch's own depthwise kernel, plain HIP or CUDA without a vendor library, also for grad-input.

    torch has no operator for grad-weight alone. For each kernel row it is one batched GEMM image^T @ gradient, whose
    diagonals are the taps: most of the products are not needed, but the GEMM reads the image `kh` times where shifted
    multiply-adds read it `kh * kw` times, and a GPU multiplies faster than it reads.
    """

    name: ClassVar[str] = "depthwise_kernel"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support one group per channel, with as many channels out as in, on a GPU."""
        reasons = common_reasons(problem, dimensions=2, groups=True)
        if problem.groups == 1 or problem.weight_shape[1] != 1:
            reasons.append(f"{problem.in_channels} channels in {problem.groups} groups, not one channel each")
        elif problem.out_channels != problem.in_channels:
            reasons.append(f"{problem.in_channels} channels become {problem.out_channels}")
        if not problem.device.startswith("cuda"):
            reasons.append(f"torch has this kernel for GPUs only, this is {problem.device}")
        return reasons

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Image, gradient and products of grad-weight, channel by channel; or the gradient spread by the stride."""
        (height, width), (out_width, kh) = _padded_size(problem), (problem.output_size[1], problem.kernel[0])
        per_channel = problem.batch * height * (width + 2 * out_width) + kh * width * out_width
        spread = padded_pixels(problem) * problem.in_channels
        return max(problem.in_channels * per_channel, 2 * spread) * element_bytes(problem)

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        return _depthwise(x, weight, bias, problem.stride, problem.padding, problem.dilation)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input: the flipped kernel over the gradient, zeros between strided pixels."""
        reach = [d * (k - 1) for d, k in zip(problem.dilation, problem.kernel, strict=True)]
        spread = grad
        if max(problem.stride) > 1:
            height, width = (i + 2 * p - r for i, p, r in zip(problem.input_size, problem.padding, reach, strict=True))
            spread = grad.new_zeros(problem.batch, problem.in_channels, height, width)
            spread[:, :, :: problem.stride[0], :: problem.stride[1]][
                :, :, : problem.output_size[0], : problem.output_size[1]
            ] = grad
        flipped = weight.flip(2, 3)
        outside = [r - p for r, p in zip(reach, problem.padding, strict=True)]
        full = _depthwise(spread, flipped, None, (1, 1), tuple(max(0, o) for o in outside), problem.dilation)
        cut = [max(0, -o) for o in outside]
        return full[:, :, cut[0] : full.shape[2] - cut[0], cut[1] : full.shape[3] - cut[1]]

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight: the diagonals of image^T @ gradient."""
        dtype, (height, width), out_width = compute_dtype(problem), _padded_size(problem), problem.output_size[1]
        image, rows = _channel_rows(problem, x.to(dtype)), _spread_rows(problem, grad.to(dtype))
        products = x.new_empty(problem.in_channels, problem.kernel[0], width, out_width, dtype=dtype)
        for tap in range(problem.kernel[0]):
            shifted = image.as_strided(
                (problem.in_channels, width, problem.batch * height),
                (image.stride(0), 1, width),
                tap * problem.dilation[0] * width,
            )
            products[:, tap] = product(shifted, rows)
        channel, row, column, one = products.stride()
        diagonals = products.as_strided(
            (problem.in_channels, *problem.kernel, out_width),
            (channel, row, problem.dilation[1] * column, problem.stride[1] * column + one),
        )
        return diagonals.sum(-1).view(problem.weight_shape).to(problem.dtype)


def _depthwise(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> torch.Tensor:
    x, weight = x.contiguous(), weight.contiguous()
    kernel = weight.shape[2:]
    result: torch.Tensor = torch.ops.aten._conv_depthwise2d(x, weight, kernel, bias, stride, padding, dilation)
    return result


def _padded_size(problem: ConvProblem) -> tuple[int, int]:
    height, width = (i + 2 * p for i, p in zip(problem.input_size, problem.padding, strict=True))
    return height, width


def _channel_rows(problem: ConvProblem, x: torch.Tensor) -> torch.Tensor:
    """Return the padded image as (channels, samples * height * width + slack)."""
    (height, width), (ph, pw), (tall, wide) = problem.input_size, problem.padding, _padded_size(problem)
    length = problem.batch * tall * wide
    flat = x.new_zeros(problem.in_channels, length + (problem.kernel[0] - 1) * problem.dilation[0] * wide)
    image = flat[:, :length].view(problem.in_channels, problem.batch, tall, wide)
    image[:, :, ph : ph + height, pw : pw + width].copy_(x.transpose(0, 1))
    return flat


def _spread_rows(problem: ConvProblem, grad: torch.Tensor) -> torch.Tensor:
    """Return the gradient as (channels, samples * padded height, width), zero in rows where no output begins."""
    (height, width), stride = problem.output_size, problem.stride[0]
    rows = grad.new_zeros(problem.in_channels, problem.batch, _padded_size(problem)[0], width)
    rows[:, :, : (height - 1) * stride + 1 : stride].copy_(grad.transpose(0, 1))
    return rows.view(problem.in_channels, -1, width)
