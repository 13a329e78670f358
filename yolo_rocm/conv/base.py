"""What an algorithm of convolution is: the engine room's, and the three passes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import torch

from ..engines.operator import BaseAlgorithm
from ..engines.products import product
from ..engines.trust.record import quarantine_reasons
from .names import INFERENCE, TRAINING
from .problem import ConvProblem

Grads = tuple["torch.Tensor | None", "torch.Tensor | None"]
# Whether the gradients of input and weight are wanted. A third: whether that of a weight in half precision may come in
# fp32, with the same values. For a parameter in fp32 autograd has nothing to convert then.
Wanted = tuple[bool, ...]


class Bound(NamedTuple):
    """The passes of an algorithm for one problem, as functions of their tensors alone.

    Attributes:
        forward: Takes input, weight and bias.
        backward: Takes gradient, input, weight, and which of the two gradients are wanted.
    """

    forward: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
    backward: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Wanted], Grads]


class Algorithm(BaseAlgorithm[ConvProblem]):
    """One way to compute a convolution.

    Results may have any memory layout; the seam brings them into the one the native kernel would have chosen. Work that
    needs more workspace than the user allows is cut outside, by `yolo_rocm.conv.chunking`, along batch and rows.
    """

    activates: ClassVar[bool] = False  # whether its forward pass computes the problem's activation too

    def bound(self, problem: ConvProblem) -> Bound:
        """Return the passes for a problem that will be met again and again; some know a shorter way then."""
        return Bound(partial(self.forward, problem), partial(self.backward, problem))

    def weight_layout(self, problem: ConvProblem) -> torch.memory_format:
        """Return the layout that forward and grad-input copy a weight to, whose data type is often converted before."""
        return torch.preserve_format

    @abstractmethod
    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input from that of the output; only where `backward` is not overridden."""
        raise NotImplementedError

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight from that of the output; only where `backward` is not overridden."""
        raise NotImplementedError

    def backward(
        self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: Wanted
    ) -> Grads:
        """Compute both gradients, those that are wanted. Native kernels override this: one call computes both.

        The weight's comes first: its workspace is free again before the input's, which is large.
        """
        for_weight = self.grad_weight(problem, grad, x) if wanted[1] else None
        return self.grad_input(problem, grad, weight) if wanted[0] else None, for_weight


def quarantined(algorithm: Algorithm, problem: ConvProblem) -> list[str]:
    """Return why an algorithm's kernel or tile is not used on the device any more, by a training nor by inference."""
    reasons = (quarantine_reasons(operator, algorithm, problem) for operator in (TRAINING, INFERENCE))
    return next(filter(None, reasons), [])


def common_reasons(
    problem: ConvProblem,
    *,
    dimensions: int | None = None,
    groups: bool = False,
    dilation: bool = True,
    dilation_in_width: bool = True,
) -> list[str]:
    """Return the reasons many algorithms share.

    Args:
        problem: The problem.
        dimensions: Number of spatial dimensions the algorithm supports; None for any.
        groups: Whether it supports groups.
        dilation: Whether it supports dilation.
        dilation_in_width: Whether it supports dilation in the last dimension.
    """
    reasons = []
    if not problem.dtype.is_floating_point:
        reasons.append(f"dtype {problem.dtype} is not floating point")
    if problem.transposed:
        reasons.append("transposed")
    if dimensions is not None and len(problem.kernel) != dimensions:
        reasons.append(f"{len(problem.kernel)} spatial dimensions, not {dimensions}")
    if not groups and problem.groups != 1:
        reasons.append(f"groups is {problem.groups}, not 1")
    if not dilation and max(problem.dilation) > 1:
        reasons.append(f"dilation is {problem.dilation}, not 1")
    elif not dilation_in_width and problem.dilation[-1] > 1:
        reasons.append(f"dilation is {problem.dilation}, not 1 in width")
    return reasons


def compute_dtype(problem: ConvProblem) -> torch.dtype:
    """Return the dtype to compute in: half precision on a CPU is widened, where GEMMs round often or do not exist."""
    half = problem.dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if half and problem.device.startswith("cpu") else problem.dtype


def element_bytes(problem: ConvProblem) -> int:
    """Size of one element of a workspace."""
    return torch.finfo(compute_dtype(problem)).bits // 8


def pixels(problem: ConvProblem) -> int:
    """Output pixels of the whole batch."""
    return problem.batch * math.prod(problem.output_size)


def padded_pixels(problem: ConvProblem) -> int:
    """Input pixels of the whole batch, padding included."""
    return problem.batch * math.prod(i + 2 * p for i, p in zip(problem.input_size, problem.padding, strict=True))


def add_bias(y: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Add a bias per channel in place."""
    return y if bias is None else y.add_(bias.view(-1, *[1] * (y.dim() - 2)))


# A GEMM adds along its inner dimension one by one: the longer, the more digits fp32 loses. Native kernels cut it too.
# Half precision is summed in fp32 and rounded at the end, where this does not show.
LONGEST_SUM = 2048


def pieces_of(length: int, dtype: torch.dtype) -> int:
    """Return into how many sums one of `length` terms is cut."""
    return max(1, length // LONGEST_SUM) if dtype == torch.float32 else 1


def split_k(a: torch.Tensor, b: torch.Tensor, tiles_wanted: int = 256) -> torch.Tensor:
    """Return `a.t() @ b` for tall matrices, by a batched GEMM over slices of the rows where one GEMM has too few tiles.

    A GEMM of a small result over a long inner dimension keeps only a few of the GPU's multiprocessors busy.
    """
    rows, tiles = a.shape[0], math.ceil(a.shape[1] / 64) * math.ceil(b.shape[1] / 64)
    slices = max(min(tiles_wanted // tiles, rows // 512), pieces_of(rows, a.dtype))
    while rows % slices:
        slices -= 1
    if slices == 1:
        return product(a.t(), b)
    return product(a.view(slices, -1, a.shape[1]).transpose(1, 2), b.view(slices, -1, b.shape[1])).sum(0)


def outer_sum(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the sum over samples of `left @ right^T` for (samples, m, length) and (samples, n, length), as (m, n)."""
    samples, _, length = left.shape
    pieces = pieces_of(length, left.dtype)
    if pieces == 1:
        return product(left, right.transpose(1, 2)).sum(0)
    step = -(-length // pieces)
    partial = left.new_empty(pieces, samples, left.shape[1], right.shape[1])
    for piece in range(pieces):
        part = slice(piece * step, min(length, (piece + 1) * step))
        product(left[:, :, part], right[:, :, part].transpose(1, 2), partial[piece])
    return partial.sum((0, 1))
