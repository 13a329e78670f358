"""Convolution as multiplication of spectra: for large kernels, where every other way repeats the image per tap."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F

from ..problem import ConvProblem
from .base import Algorithm, add_bias, common_reasons, element_bytes

SMALLEST_KERNEL = 5


class Fft(Algorithm):
    """One real FFT per operand, one complex GEMM per frequency, one FFT back. A strided output is a subset."""

    name: ClassVar[str] = "fft"
    exact: ClassVar[bool] = False

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve large kernels in fp32 and fp64; half precision has no complex GEMM."""
        reasons = common_reasons(problem, dimensions=2)
        if min(problem.kernel, default=0) < SMALLEST_KERNEL:
            reasons.append(f"kernel {problem.kernel} is smaller than {SMALLEST_KERNEL}x{SMALLEST_KERNEL}")
        if problem.dtype not in (torch.float32, torch.float64):
            reasons.append(f"dtype {problem.dtype} is not float32 or float64")
        return reasons

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Spectra of input, kernel and output, twice: FFTs and GEMMs write new ones."""
        height, width = _size(problem)
        frequencies = height * (width // 2 + 1)
        matrices = problem.batch * (problem.in_channels + problem.out_channels) + math.prod(problem.weight_shape[:2])
        return 2 * 2 * 2 * frequencies * matrices * element_bytes(problem)

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output: correlation is multiplication with the conjugate spectrum."""
        size = _size(problem)
        image = _spectrum(_padded(problem, x), size)  # (frequency, samples, in)
        kernel = _spectrum(_dilated(problem, weight), size)  # (frequency, out, in)
        y = _back(torch.bmm(image, kernel.conj().transpose(1, 2)), size)
        (sh, sw), (height, width) = problem.stride, problem.output_size
        kept = y[:, :, : (height - 1) * sh + 1 : sh, : (width - 1) * sw + 1 : sw]
        return add_bias(kept.contiguous(), bias)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input: multiplication with the spectrum itself."""
        size = _size(problem)
        spread = _spectrum(_spread(problem, grad), size)
        kernel = _spectrum(_dilated(problem, weight), size)
        full = _back(torch.bmm(spread, kernel), size)
        (ph, pw), (height, width) = problem.padding, problem.input_size
        return full[:, :, ph : ph + height, pw : pw + width]

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight: image and gradient correlated over the whole batch."""
        size = _size(problem)
        image = _spectrum(_padded(problem, x), size)
        spread = _spectrum(_spread(problem, grad), size)
        full = _back(torch.bmm(spread.conj().transpose(1, 2), image), size)  # (out, in, H, W)
        (kh, kw), (dh, dw) = problem.kernel, problem.dilation
        return full[:, :, : (kh - 1) * dh + 1 : dh, : (kw - 1) * dw + 1 : dw]


def _size(problem: ConvProblem) -> tuple[int, int]:
    """Return height and width of the padded image, rounded up to products of 2, 3 and 5, which FFTs like."""
    height, width = (_smooth(i + 2 * p) for i, p in zip(problem.input_size, problem.padding, strict=True))
    return height, width


def _smooth(n: int) -> int:
    while True:
        rest = n
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return n
        n += 1


def _padded(problem: ConvProblem, x: torch.Tensor) -> torch.Tensor:
    (ph, pw) = problem.padding
    return F.pad(x, (pw, pw, ph, ph)) if ph or pw else x


def _dilated(problem: ConvProblem, weight: torch.Tensor) -> torch.Tensor:
    """Put zeros between the taps of a dilated kernel."""
    (kh, kw), (dh, dw) = problem.kernel, problem.dilation
    if dh == dw == 1:
        return weight
    spread = weight.new_zeros(*weight.shape[:2], (kh - 1) * dh + 1, (kw - 1) * dw + 1)
    spread[:, :, ::dh, ::dw] = weight
    return spread


def _spread(problem: ConvProblem, grad: torch.Tensor) -> torch.Tensor:
    """Put zeros between the pixels of a strided gradient."""
    (sh, sw), (height, width) = problem.stride, problem.output_size
    if sh == sw == 1:
        return grad
    spread = grad.new_zeros(*grad.shape[:2], (height - 1) * sh + 1, (width - 1) * sw + 1)
    spread[:, :, ::sh, ::sw] = grad
    return spread


def _spectrum(x: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Return (frequency, first, second) of a (first, second, H, W) tensor."""
    spectrum: torch.Tensor = torch.fft.rfft2(x, s=size)
    return spectrum.flatten(2).permute(2, 0, 1).contiguous()


def _back(spectrum: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Return (first, second, H, W) of a (frequency, first, second) spectrum."""
    shape = (*spectrum.shape[1:], size[0], size[1] // 2 + 1)
    result: torch.Tensor = torch.fft.irfft2(spectrum.permute(1, 2, 0).reshape(shape), s=size)
    return result
