"""Winograd for 3x3 kernels: fewer multiplications, paid with transforms and, for large tiles, with digits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial
from typing import ClassVar, Final

import torch
import torch.nn.functional as F

from ...engines.devices import outside_capture
from ...engines.products import product
from ..base import Algorithm, add_bias, common_reasons, compute_dtype, element_bytes
from ..problem import ConvProblem

# The interpolation points of F(4, 3), in addition to 0 and infinity. The usual 1, -1, 2, -2 of Lavin & Gray
# (arXiv 1509.09308) err 4.3 times as much as a direct convolution at 64 channels, 2/3 and its reciprocal 2.0 times.
_POINTS = (2 / 3, -2 / 3, 3 / 2, -3 / 2)
_TILE: Final = 4
FEWEST_CHANNELS = 64


class Winograd4(Algorithm):
    """F(4x4, 3x3): 4 times fewer multiplications, one batched GEMM over the elements of tiles of 6 x 6 inputs.

    Both transforms of a tile are one small GEMM with a Kronecker square; grad-weight is the adjoint of the forward.
    """

    name: ClassVar[str] = "winograd4"
    exact: ClassVar[bool] = False

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support 3x3 kernels with stride 1 in fp32 and fp64; half precision would overflow in the transforms."""
        reasons = common_reasons(problem, dimensions=2, dilation=False)
        if problem.kernel != (3, 3):
            reasons.append(f"kernel {problem.kernel} is not 3x3")
        if max(problem.stride) > 1:
            reasons.append(f"stride is {problem.stride}, not 1")
        if max(problem.padding) > 2:
            reasons.append(f"padding {problem.padding} is larger than 2")
        if problem.dtype not in (torch.float32, torch.float64):
            reasons.append(f"dtype {problem.dtype} is not float32 or float64")
        # The sum over channels has to be long enough to err as much as the transforms do.
        if min(problem.in_channels, problem.out_channels) < FEWEST_CHANNELS:
            reasons.append(f"fewer than {FEWEST_CHANNELS} channels: errs more than twice as much as a direct sum")
        return reasons

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Gathered tiles, their transform, the products, and a transform of those."""
        tiles = problem.batch * math.prod(-(-n // _TILE) for n in problem.output_size)
        side = (_TILE + 2) ** 2
        channels = max(problem.in_channels, problem.out_channels)
        return tiles * side * (2 * channels + problem.in_channels + problem.out_channels) * element_bytes(problem)

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        (ph, pw), (height, width) = problem.padding, problem.output_size
        return add_bias(self._convolve(x, weight, (ph, pw), (height, width)), bias)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input: a convolution with the flipped kernel."""
        (ph, pw), (height, width) = problem.padding, problem.input_size
        return self._convolve(grad, weight.flip(2, 3).transpose(0, 1), (2 - ph, 2 - pw), (height, width))

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        m = _TILE
        _, kernel_side, output_side = _squares(compute_dtype(problem), x.device)
        (ph, pw), (height, width) = problem.padding, problem.output_size
        down, across = -(-height // m), -(-width // m)
        tiles = self._input_tiles(x, (ph, pw), (down, across))
        padded = F.pad(grad, (0, across * m - width, 0, down * m - height))
        cells = padded.reshape(problem.batch, problem.out_channels, down, m, across, m)
        flat = cells.permute(3, 5, 1, 0, 2, 4).reshape(m * m, -1)
        spread = product(output_side.t(), flat).view((m + 2) ** 2, problem.out_channels, -1)
        products = product(spread, tiles.transpose(1, 2))
        matrix = product(kernel_side.t(), products.flatten(1))
        return matrix.view(3, 3, problem.out_channels, problem.in_channels).permute(2, 3, 0, 1)

    def _convolve(
        self, x: torch.Tensor, weight: torch.Tensor, padding: tuple[int, int], size: tuple[int, int]
    ) -> torch.Tensor:
        m = _TILE
        _, kernel_side, output_side = _squares(x.dtype, x.device)
        down, across = -(-size[0] // m), -(-size[1] // m)
        out_channels, in_channels = weight.shape[:2]
        spread = product(kernel_side, weight.permute(2, 3, 0, 1).reshape(9, -1)).view(-1, out_channels, in_channels)
        products = product(spread, self._input_tiles(x, padding, (down, across)))
        cells = product(output_side, products.flatten(1)).view(m, m, out_channels, x.shape[0], down, across)
        y = cells.permute(3, 2, 4, 0, 5, 1).reshape(x.shape[0], out_channels, down * m, across * m)
        return y[:, :, : size[0], : size[1]]

    def _input_tiles(self, x: torch.Tensor, padding: tuple[int, int], tiles: tuple[int, int]) -> torch.Tensor:
        """Return the transformed input as (tile elements, channels, samples * tiles)."""
        m, side = _TILE, _TILE + 2
        samples, channels, height, width = x.shape
        (top, left), (down, across) = padding, tiles
        padded = F.pad(x, (left, across * m + 2 - width - left, top, down * m + 2 - height - top))
        sample, channel, row, column = padded.stride()
        view = padded.as_strided(
            (side, side, channels, samples, down, across), (row, column, channel, sample, m * row, m * column)
        )
        input_side, _, _ = _squares(x.dtype, x.device)
        return product(input_side, view.reshape(side * side, -1)).view(side * side, channels, -1)


@cache
def _squares(dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the Kronecker squares of B^T, G and A^T: a two-dimensional transform as one matrix."""
    return outside_capture(device, partial(_made_squares, dtype, device))


def _made_squares(dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    with torch.inference_mode(False):  # cached for training too, whatever runs first
        matrices = (torch.tensor(m, dtype=torch.float64) for m in transform_matrices())
        first, second, third = (torch.kron(m, m).to(device, dtype) for m in matrices)
    return first, second, third


def transform_matrices() -> tuple[list[list[float]], list[list[float]], list[list[float]]]:
    """Return B^T (input), G (kernel) and A^T (output) of F(4, 3), by Toom and Cook's interpolation."""
    points = (0.0, *_POINTS)
    last = len(points)  # the point at infinity
    others = [[q for q in points if q != p] for p in points]
    from_input = [[*_polynomial(rest), 0.0] for rest in others] + [_polynomial(points)]
    scales = [math.prod(p - q for q in rest) for p, rest in zip(points, others, strict=True)]
    from_kernel = [[p**power / scale for power in range(3)] for p, scale in zip(points, scales, strict=True)]
    from_kernel.append([0.0, 0.0, 1.0])
    to_output = [[p**power for p in points] + [float(power == _TILE - 1)] for power in range(_TILE)]
    assert len(from_input) == len(from_kernel) == last + 1
    return from_input, from_kernel, to_output


def _polynomial(roots: Sequence[float]) -> list[float]:
    """Return the coefficients of the product of (x - root), lowest power first."""
    coefficients = [1.0]
    for root in roots:
        shifted, scaled = [0.0, *coefficients], [*(-root * c for c in coefficients), 0.0]
        coefficients = [a + b for a, b in zip(shifted, scaled, strict=True)]
    return coefficients
