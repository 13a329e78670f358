"""ConvTranspose with the roles swapped: its forward is an ordinary convolution's grad-input, and vice versa."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F

from ...engines.products import product
from ..base import Algorithm, add_bias, compute_dtype, element_bytes, outer_sum, pieces_of
from ..problem import ConvProblem


def _reasons(problem: ConvProblem) -> list[str]:
    reasons = [] if problem.dtype.is_floating_point else [f"dtype {problem.dtype} is not floating point"]
    return reasons if problem.transposed else [*reasons, "not transposed"]


class Transposed(Algorithm):
    """Compute a transposed convolution by the first algorithm that supports its ordinary counterpart."""

    name: ClassVar[str] = "transposed"

    def __init__(self, direct_algorithms: Sequence[Algorithm]) -> None:
        """Take the algorithms for ordinary convolutions, best first."""
        self.direct_algorithms = tuple(direct_algorithms)

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support transposed convolutions of floating-point tensors."""
        return _reasons(problem)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Whatever the ordinary counterpart takes."""
        direct = problem.direct()
        return self._supporting(direct).workspace_bytes(direct)

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        direct = problem.direct()
        return add_bias(self._supporting(direct).grad_input(direct, _fit(x, direct), weight), bias)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        direct = problem.direct()
        full = self._supporting(direct).forward(direct, grad, weight, None)
        inner = (slice(None), slice(None), *(slice(i) for i in problem.input_size))
        return full[inner]

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        direct = problem.direct()
        return self._supporting(direct).grad_weight(direct, _fit(x, direct), grad)

    def _supporting(self, direct: ConvProblem) -> Algorithm:
        return next(a for a in self.direct_algorithms if not a.not_supported_reasons(direct))


class KernelTransposed(Transposed):
    """ConvTranspose through the kernels of ordinary convolutions of an engine.

    Its forward pass is the gradient of an input, phase by phase, so that an upsampling kernel wastes nothing.
    """

    def __init__(self, inner: Algorithm) -> None:
        """Take the algorithm for ordinary convolutions."""
        super().__init__((inner,))
        self.name, self.engine = f"{inner.engine}_transposed", inner.engine  # type: ignore[misc]

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support what the ordinary counterpart supports."""
        reasons = super().not_supported_reasons(problem)
        if reasons or len(problem.kernel) != 2:
            return reasons or [f"{len(problem.kernel)} spatial dimensions, not 2"]
        return self.tested_by().not_supported_reasons(problem.direct())

    def tested_by(self) -> Algorithm:
        """Return the ordinary counterpart."""
        return self.direct_algorithms[0]


class TransposedShuffle(Algorithm):
    """Kernel equal to stride, as YOLO upsamples: windows do not overlap, so one GEMM and one shuffling copy do it."""

    name: ClassVar[str] = "transposed_shuffle"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support kernels equal to their stride, without padding, dilation and groups, in two dimensions."""
        reasons = _reasons(problem)
        if len(problem.kernel) != 2:
            reasons.append(f"{len(problem.kernel)} spatial dimensions, not 2")
        if problem.kernel != problem.stride:
            reasons.append(f"kernel {problem.kernel} is not the stride {problem.stride}")
        if any(problem.padding) or any(problem.output_padding) or max(problem.dilation) > 1 or problem.groups > 1:
            reasons.append("has padding, output_padding, dilation or groups")
        return reasons

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """The unshuffled output, and one partial weight per sample."""
        pieces = pieces_of(math.prod(problem.input_size), compute_dtype(problem))
        partial = problem.batch * pieces * math.prod(problem.weight_shape)
        return (math.prod(problem.output_shape) + partial) * element_bytes(problem)

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        dtype = compute_dtype(problem)
        matrix = weight.to(dtype).reshape(problem.in_channels, -1).t()
        flat = product(matrix.expand(problem.batch, -1, -1), x.to(dtype).flatten(2))
        cells = flat.view(problem.batch, problem.out_channels, *problem.kernel, *problem.input_size)
        y = cells.permute(0, 1, 4, 2, 5, 3).reshape(problem.output_shape)
        return add_bias(y, None if bias is None else bias.to(dtype)).to(problem.dtype)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        dtype = compute_dtype(problem)
        matrix = weight.to(dtype).reshape(problem.in_channels, -1)
        flat = product(matrix.expand(problem.batch, -1, -1), _cells(problem, grad.to(dtype)))
        return flat.view(problem.input_shape).to(problem.dtype)

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        dtype = compute_dtype(problem)
        matrix = outer_sum(x.to(dtype).flatten(2), _cells(problem, grad.to(dtype)))
        return matrix.view(problem.weight_shape).to(problem.dtype)


def _cells(problem: ConvProblem, grad: torch.Tensor) -> torch.Tensor:
    """Return the output's gradient as (samples, out * kernel, input pixels)."""
    (kh, kw), (height, width) = problem.kernel, problem.input_size
    cells = grad.reshape(problem.batch, problem.out_channels, height, kh, width, kw)
    return cells.permute(0, 1, 3, 5, 2, 4).reshape(problem.batch, -1, height * width)


def _fit(x: torch.Tensor, direct: ConvProblem) -> torch.Tensor:
    """Pad `x` with zeros to the ordinary convolution's output, which is larger when output_padding >= stride."""
    missing = [want - have for want, have in zip(direct.output_size, x.shape[2:], strict=True)]
    if not any(missing):
        return x
    return F.pad(x, [n for m in reversed(missing) for n in (0, m)])
