"""BatchNorm in plain PyTorch, on any device and from torch 1.13 on.

Sums go over the pixels of each sample and channel first, and over samples afterwards: torch's own kernel for NCHW gives
one block to each channel, and a few channels keep a few of a GPU's multiprocessors busy. A sample's variance is taken
about its own mean by torch's reduction, and samples are joined by the spread of their means: nothing is subtracted that
nearly cancels, whatever the mean. Half precision is summed in fp32, in pieces of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar, Final

import torch
from torch import Tensor

from ..engines.chunking import chunks
from .activations import activated, gradient
from .base import NormAlgorithm, NormGrads, Parameters, Statistics, Wanted
from .problem import IDENTITY, NormProblem

_PIECE: Final = 2**24  # elements that are computed at a time where values in between have to be kept


class Torch(NormAlgorithm):
    """Reductions and element-wise operators of torch, few passes over memory."""

    name: ClassVar[str] = "torch"
    engine: ClassVar[str] = "gemm"

    def not_supported_reasons(self, problem: NormProblem) -> list[str]:
        """Everything in floating point is supported."""
        return [] if problem.dtype.is_floating_point else [f"dtype {problem.dtype} is not floating point"]

    def workspace_bytes(self, problem: NormProblem) -> int:
        """Return what one piece keeps: in backward its normalised value, its gradient, and their products."""
        piece = min(math.prod(problem.shape), max(_PIECE, math.prod(problem.shape[1:])))
        own, wide = (torch.finfo(dtype).bits // 8 for dtype in (problem.dtype, problem.statistics_dtype))
        return piece * (2 * own + wide)

    def forward(self, problem: NormProblem, x: Tensor, p: Parameters) -> tuple[Tensor, Statistics]:
        """Return the activation and the statistics; update the running ones in training."""
        statistics = _of_batch(problem, x, p) if problem.training else running(problem, p)
        return self.activate(problem, x, p, statistics), statistics

    def activate(self, problem: NormProblem, x: Tensor, p: Parameters, statistics: Statistics) -> Tensor:
        """Return the activation once more."""
        scale, shift = _linear(problem, p, statistics)
        return activated(problem, _multiply_add(torch.empty_like(x), shift, x, scale))

    def backward(
        self, problem: NormProblem, grad: Tensor, x: Tensor, p: Parameters, statistics: Statistics, wanted: Wanted
    ) -> NormGrads:
        """Return the gradients of input, weight and bias."""
        scale, shift = _linear(problem, p, statistics)
        for_x = torch.empty_like(x) if wanted[0] else None
        sums: list[tuple[Tensor, Tensor]] = []
        needs_sums = problem.training or wanted[1] or wanted[2]
        mean = _per_channel(problem, statistics.mean)
        for part in _pieces(problem):
            of_z = grad[part]
            if problem.activation != IDENTITY:
                z = _multiply_add(torch.empty_like(x[part]), shift, x[part], scale)
                of_z = gradient(problem, of_z, z)
                if for_x is not None:  # where the second loop finds it, and replaces it
                    for_x[part].copy_(of_z)
            if needs_sums:
                products = torch.sub(x[part], mean).mul_(of_z)
                sums.append((_over_pixels(problem, of_z), _over_pixels(problem, products)))
        for_weight = for_bias = None
        if needs_sums:
            for_bias, moment = (torch.cat(each).sum(0) for each in zip(*sums, strict=True))
            for_weight = moment.mul_(statistics.invstd)
        if for_x is not None:
            source = grad if problem.activation == IDENTITY else for_x
            if for_weight is None or for_bias is None or not problem.training:
                torch.mul(source, scale, out=for_x)
            else:  # scale * (source - mean(source) - normalised * mean(source * normalised))
                flat = scale.flatten()
                slope = (flat * statistics.invstd).mul_(for_weight).div_(-problem.rows)
                constant = torch.addcmul((flat * for_bias).div_(-problem.rows), slope, statistics.mean, value=-1)
                slope, constant = _per_channel(problem, slope), _per_channel(problem, constant)
                for part in _pieces(problem):
                    through_statistics = torch.addcmul(constant, x[part], slope)
                    _multiply_add(for_x[part], through_statistics, source[part], scale)
        dtype = problem.statistics_dtype if p.weight is None else p.weight.dtype
        of_parameters = zip((for_weight, for_bias), wanted[1:], strict=True)
        return NormGrads(
            for_x, *(each.to(dtype) if want and each is not None else None for each, want in of_parameters)
        )


def running(problem: NormProblem, p: Parameters) -> Statistics:
    """Return the statistics of a layer that does not use the batch's."""
    assert p.running_mean is not None  # the seam leaves such a call to torch
    assert p.running_var is not None
    dtype = problem.statistics_dtype
    return Statistics(p.running_mean.to(dtype), p.running_var.to(dtype).add(p.eps).rsqrt_())


def update_running(problem: NormProblem, p: Parameters, mean: Tensor, var: Tensor) -> None:
    """Move the running statistics towards those of a batch, given its biased variance."""
    rows = problem.rows
    unbiased = p.momentum * rows / (rows - 1) if rows > 1 else math.inf  # as torch does: NaN
    for old, new, share in ((p.running_mean, mean, p.momentum), (p.running_var, var, unbiased)):
        if old is None:
            continue
        # torch does not count it either: a pass in eval mode that came before may still go backward.
        old = old.data
        if old.dtype == new.dtype:
            old.mul_(1 - p.momentum).add_(new, alpha=share)
        else:  # rounded once
            old.copy_(old.to(new.dtype).mul_(1 - p.momentum).add_(new, alpha=share))
    if p.batches is not None:
        p.batches.add_(1)


def _of_batch(problem: NormProblem, x: Tensor, p: Parameters) -> Statistics:
    dtype = problem.statistics_dtype
    if x.dtype == dtype:
        var, mean = torch.var_mean(_flat(problem, x), 2, unbiased=False)
    else:
        parts = [torch.var_mean(_flat(problem, x[part].to(dtype)), 2, unbiased=False) for part in _pieces(problem)]
        var, mean = (torch.cat(each) for each in zip(*parts, strict=True))
    if problem.shape[0] == 1:
        var, mean = var[0], mean[0]
    else:  # as many pixels in every sample: plain means
        between, total = torch.var_mean(mean, 0, unbiased=False)
        var, mean = var.mean(0).add_(between), total
    update_running(problem, p, mean, var)
    return Statistics(mean, var.add(p.eps).rsqrt_())


def _linear(problem: NormProblem, p: Parameters, statistics: Statistics) -> tuple[Tensor, Tensor]:
    """Return `scale` and `shift` of each channel: the normalised value is `x * scale + shift`."""
    mean, invstd = statistics
    scale = invstd if p.weight is None else invstd * p.weight
    shift = (mean * scale).neg_() if p.bias is None else torch.addcmul(p.bias.to(mean.dtype), mean, scale, value=-1)
    return _per_channel(problem, scale), _per_channel(problem, shift)


def _multiply_add(result: Tensor, add: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Write `add + a * b` into `result`, computed in the widest type of all."""
    if result.is_cuda or result.dtype == add.dtype:
        return torch.addcmul(add, a, b, out=result)
    return result.copy_(torch.addcmul(add, a, b))  # torch 1.13 does not round into a result of another type on a CPU


def _over_pixels(problem: NormProblem, x: Tensor) -> Tensor:
    return _flat(problem, x).sum(2, dtype=problem.statistics_dtype)


def _flat(problem: NormProblem, x: Tensor) -> Tensor:
    """Return samples, channels and pixels, without a copy in either layout."""
    return x.flatten(2) if len(problem.shape) > 2 else x.unsqueeze(2)


def _per_channel(problem: NormProblem, values: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (len(problem.shape) - 2))


def _pieces(problem: NormProblem) -> Iterator[slice]:
    return chunks(problem.shape[0], math.prod(problem.shape[1:]), _PIECE)
