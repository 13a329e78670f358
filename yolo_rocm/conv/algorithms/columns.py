"""Columns in NHWC: one strided copy writes every window as a row, ONE GEMM multiplies all of them."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from ..problem import ConvProblem
from .base import common_reasons, compute_dtype, element_bytes, padded_pixels, pixels, split_k
from .correlating import Correlating, Pair


class Columns(Correlating):
    """A window of an NHWC image is `kh` runs of `kw * channels` neighbours, so the copy is a fast one."""

    name: ClassVar[str] = "columns"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve two spatial dimensions without groups."""
        return common_reasons(problem, dimensions=2)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Columns and the padded image they are cut from; for grad-input of the gradient instead of the input."""
        taps = math.prod(problem.kernel)
        forward = pixels(problem) * taps * problem.in_channels + padded_pixels(problem) * problem.in_channels
        phases = math.prod(problem.stride)
        image = problem.batch * math.prod(problem.input_size)
        backward = (-(-image // phases) * -(-taps // phases) + 2 * pixels(problem)) * problem.out_channels
        return max(forward, backward) * element_bytes(problem)

    def correlate(
        self, x: torch.Tensor, weight: torch.Tensor, stride: Pair, pads: tuple[Pair, Pair], dilation: Pair
    ) -> torch.Tensor:
        """Correlate."""
        columns, size = _columns(x, (weight.shape[2], weight.shape[3]), stride, pads, dilation)
        y = columns @ weight.permute(2, 3, 1, 0).reshape(-1, weight.shape[0])
        return y.view(x.shape[0], *size, -1).permute(0, 3, 1, 2)

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        dtype = compute_dtype(problem)
        (ph, pw), (sh, sw), (dh, dw) = problem.padding, problem.stride, problem.dilation
        (kh, kw), channels = problem.kernel, problem.in_channels
        columns, _ = _columns(x.to(dtype), (kh, kw), (sh, sw), ((ph, ph), (pw, pw)), (dh, dw))
        rows = grad.to(dtype).permute(0, 2, 3, 1).reshape(-1, problem.out_channels)
        matrix = split_k(columns, rows)
        return matrix.view(kh, kw, channels, -1).permute(3, 2, 0, 1).to(problem.dtype)


def padded_nhwc(x: torch.Tensor, pads: tuple[Pair, Pair]) -> torch.Tensor:
    """Return `x` as a contiguous NHWC image with a border of zeros; `x` itself where it is one without a border."""
    image = x.permute(0, 2, 3, 1)
    (top, bottom), (left, right) = pads
    if not (top or bottom or left or right):
        return image.contiguous()
    samples, height, width, channels = image.shape
    padded = x.new_zeros(samples, height + top + bottom, width + left + right, channels)
    padded[:, top : top + height, left : left + width].copy_(image)
    return padded


def _columns(
    x: torch.Tensor, kernel: Pair, stride: Pair, pads: tuple[Pair, Pair], dilation: Pair
) -> tuple[torch.Tensor, Pair]:
    """Return (samples * pixels, kh * kw * channels) and the output's height and width."""
    image = padded_nhwc(x, pads)
    samples, height, width, channels = image.shape
    size = (
        (height - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1,
        (width - dilation[1] * (kernel[1] - 1) - 1) // stride[1] + 1,
    )
    sample, row, column, one = image.stride()
    view = image.as_strided(
        (samples, *size, *kernel, channels),
        (sample, row * stride[0], column * stride[1], row * dilation[0], column * dilation[1], one),
    )
    return view.reshape(-1, kernel[0] * kernel[1] * channels), size
