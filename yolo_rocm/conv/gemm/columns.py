"""Columns in NHWC: one strided copy writes every window as a row, ONE GEMM multiplies all of them."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from ...engines.products import product
from ..base import common_reasons, element_bytes, padded_pixels, pixels, split_k
from ..problem import ConvProblem
from .correlating import Correlating, Window


class NhwcColumns(Correlating):
    """A window of an NHWC image is `kh` runs of `kw * channels` neighbours, so the copy is a fast one."""

    name: ClassVar[str] = "columns"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support two spatial dimensions without groups."""
        return common_reasons(problem, dimensions=2)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Columns and the padded image they are cut from; for grad-input of the gradient instead of the input."""
        taps = math.prod(problem.kernel)
        forward = pixels(problem) * taps * problem.in_channels + padded_pixels(problem) * problem.in_channels
        phases = math.prod(problem.stride)
        image = problem.batch * math.prod(problem.input_size)
        backward = (-(-image // phases) * -(-taps // phases) + 2 * pixels(problem)) * problem.out_channels
        return max(forward, backward) * element_bytes(problem)

    def correlate(self, x: torch.Tensor, weight: torch.Tensor, window: Window) -> torch.Tensor:
        """Correlate."""
        y = product(_columns(x, window), weight.permute(2, 3, 1, 0).reshape(-1, weight.shape[0]))
        return y.view(x.shape[0], *window.output_size(x), -1).permute(0, 3, 1, 2)

    def correlate_gradient(self, grad: torch.Tensor, x: torch.Tensor, window: Window) -> torch.Tensor:
        """Return the gradient of the kernel."""
        rows = grad.permute(0, 2, 3, 1).reshape(-1, grad.shape[1])
        matrix = split_k(_columns(x, window), rows)
        return matrix.view(*window.kernel, x.shape[1], -1).permute(3, 2, 0, 1)


def _columns(x: torch.Tensor, window: Window) -> torch.Tensor:
    """Return (samples * output pixels, kh * kw * channels)."""
    (top, bottom), (left, right) = window.pads
    image = x.permute(0, 2, 3, 1)
    if top or bottom or left or right:
        padded = x.new_zeros(x.shape[0], *window.padded_size(x), x.shape[1])
        padded[:, top : top + x.shape[2], left : left + x.shape[3]].copy_(image)
        image = padded
    image = image.contiguous()
    (sh, sw), (dh, dw) = window.stride, window.dilation
    sample, row, column, one = image.stride()
    view = image.as_strided(
        (x.shape[0], *window.output_size(x), *window.kernel, x.shape[1]),
        (sample, row * sh, column * sw, row * dh, column * dw, one),
    )
    return view.reshape(-1, math.prod(window.kernel) * x.shape[1])
