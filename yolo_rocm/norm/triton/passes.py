"""The passes of a Triton BatchNorm for one problem, with launches at hand: repeated calls are memory and launches.

What a launch is made of besides the problem (data types of parameters, what is tracked, momentum, which gradients are
wanted) is looked up once a call: on a fast GPU small layers take less time than Python needs for them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import torch
from torch import Tensor

from ...engines.bounded import Bounded
from ...engines.device_state import STATE
from ...engines.devices import processors
from ...engines.names import Pass
from ...engines.triton.available import family
from ...engines.triton.call import Call
from ...engines.triton.launch import Launch
from ..base import NormGrads, Parameters, Statistics, Wanted, count_write
from ..problem import IDENTITY, NormProblem
from ..pytorch import running
from . import calls
from .tiles import Tile, tile

# A momentum that changes with every batch, as that of a cumulative average, makes launches of its own: of so many at
# most.
_MOST_REMEMBERED: Final = 32
_Described = list[tuple[Call, tuple[torch.dtype, ...]]]
_known: dict[tuple[str, NormProblem], TritonPasses] = STATE.container(Bounded())


def passes(size: str, problem: NormProblem) -> TritonPasses:
    """Return the passes of a problem with a size of tiles, made on first sight."""
    found = _known.get((size, problem))
    if found is None:
        found = _known[size, problem] = TritonPasses(size, problem)
    return found


class TritonPasses:
    """Forward, activation and backward of one problem."""

    def __init__(self, size: str, problem: NormProblem) -> None:
        """Cut the problem into parts.

        Args:
            size: Of the tiles.
            problem: The problem.
        """
        self._problem, self._size = problem, size
        self._tile: Tile = tile(family(problem.device), size)
        self._parts = calls.cut(problem, self._tile, processors(problem.device))
        self.is_whole = self._parts.parts == 1  # one program for each channel, or block of channels
        self._made: dict[Hashable, Launch] = {}

    @property
    def partials(self) -> int:
        """Elements in fp32 of the partial results of a pass."""
        return 4 * self._parts.parts * self._problem.channels

    @property
    def values(self) -> int:
        """Values that a program adds up."""
        return self._parts.part_tiles * self._parts.block.a * self._parts.block.b

    def forward(self, x: Tensor, p: Parameters) -> tuple[Tensor, Statistics]:
        """Compute statistics and activation; update the running statistics in training."""
        problem, made = self._problem, self._made
        if not problem.training:
            statistics = running(problem, p)
            return self.activate(x, p, statistics), statistics
        weight, bias, running_mean, running_var, momentum, eps, batches = p
        mean = x.new_empty(problem.channels, dtype=torch.float32)
        invstd = torch.empty_like(mean)
        if weight is None or bias is None:
            weight = bias = mean
        settings = (momentum, eps, running_mean is not None and running_var is not None, batches is not None)
        if running_mean is None or running_var is None:
            running_mean = running_var = mean
        if batches is None:
            batches = mean
        else:
            count_write(batches)
        name: tuple[Any, ...] = (*settings, running_mean.dtype, running_var.dtype)
        if self.is_whole:
            y, name = torch.empty_like(x), ("whole forward", *name, weight.dtype, bias.dtype)
            launch = made.get(name) or self._launch(
                name, calls.whole_forward(problem, self._parts, self._tile, *settings)
            )
            launch(x, running_mean, running_var, batches, weight, bias, mean, invstd, y)
            return y, Statistics(mean, invstd)
        partial = x.new_empty(self.partials, dtype=torch.float32)
        first = made.get("partial") or self._launch(
            "partial", calls.partial_statistics(problem, self._parts, self._tile)
        )
        first(x, partial)
        launch = made.get(name) or self._launch(name, calls.combine_statistics(problem, self._parts, *settings))
        launch(partial, running_mean, running_var, batches, mean, invstd)
        return self._activated(x, mean, invstd, weight, bias), Statistics(mean, invstd)

    def activate(self, x: Tensor, p: Parameters, statistics: Statistics) -> Tensor:
        """Compute the activation alone."""
        mean, invstd = statistics
        weight, bias = (mean, mean) if p.weight is None or p.bias is None else (p.weight, p.bias)
        return self._activated(x, mean, invstd, weight, bias)

    def _activated(self, x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y, name = torch.empty_like(x), ("activate", weight.dtype, bias.dtype)
        launch = self._made.get(name) or self._launch(name, calls.activate(self._problem, self._tile))
        launch(x, mean, invstd, weight, bias, y)
        return y

    def backward(self, grad: Tensor, x: Tensor, p: Parameters, statistics: Statistics, wanted: Wanted) -> NormGrads:
        """Compute the gradients that are wanted."""
        mean, invstd = statistics
        weight = mean if p.weight is None else p.weight
        bias = weight if p.bias is None else p.bias  # without an activation it may be left out
        made, problem, parts = self._made, self._problem, self._parts
        for_input, for_weight, for_bias = wanted
        grad_weight = torch.empty_like(weight) if for_weight and problem.affine else None
        grad_bias = torch.empty_like(bias) if for_bias and problem.affine else None
        results = (weight if grad_weight is None else grad_weight, bias if grad_bias is None else grad_bias)
        read = (grad, x, mean, invstd, weight, bias)
        stored = (grad_weight is not None, grad_bias is not None)
        sums, dtypes = any(stored) or (for_input and problem.training), (weight.dtype, bias.dtype)
        name: tuple[Any, ...]
        if self.is_whole and sums and for_input:
            grad_x, name = torch.empty_like(x), ("whole", *stored, *dtypes)
            launch = made.get(name) or self._launch(name, calls.whole_backward(problem, parts, self._tile, *stored))
            launch(*read, *results, grad_x)
            return NormGrads(grad_x, grad_weight, grad_bias)
        coefficients = mean
        if sums:
            partial = mean.new_empty(self.partials // 2)
            coefficients = mean.new_empty(2 * problem.channels)
            name = ("partial sums", *dtypes)
            launch = made.get(name) or self._launch(name, calls.partial_gradients(problem, parts, self._tile))
            launch(*read, partial)
            name = ("sums", *stored, *dtypes)
            launch = made.get(name) or self._launch(name, calls.combine_gradients(problem, parts, *stored))
            launch(partial, invstd, weight, *results, coefficients)
        if not for_input:
            return NormGrads(None, grad_weight, grad_bias)
        grad_x, name = torch.empty_like(x), ("gradient", *dtypes)
        launch = made.get(name) or self._launch(name, calls.input_gradient(problem, self._tile))
        launch(*read, coefficients, grad_x)
        return NormGrads(grad_x, grad_weight, grad_bias)

    def described(self, which: Pass) -> _Described:
        """Return the launches of a pass, with the data types of their tensors, as a training makes them most often."""
        problem, cut, affine = self._problem, self._parts, self._problem.affine
        own, full = problem.dtype, torch.float32
        activate = (calls.activate(problem, self._tile), (own, *[full] * 4, own))
        gradient = (calls.input_gradient(problem, self._tile), (own, own, *[full] * 5, own))
        # A layer that is one with its activation counts its batches; torch.nn.BatchNorm2d does that itself.
        count = problem.activation != IDENTITY
        batches = torch.int64 if count else full
        settings = (0.1, 1e-5, True, count)
        if which == Pass.BACKWARD:
            if self.is_whole:
                whole = calls.whole_backward(problem, cut, self._tile, affine, affine)
                return [(whole, (own, own, *[full] * 6, own))]
            sums = (calls.partial_gradients(problem, cut, self._tile), (own, own, *[full] * 5))
            return [sums, (calls.combine_gradients(problem, cut, affine, affine), (full,) * 6), gradient]
        if not problem.training:
            return [activate]
        if self.is_whole:
            whole = calls.whole_forward(problem, cut, self._tile, *settings)
            return [(whole, (own, full, full, batches, *[full] * 4, own)), activate]
        partial = (calls.partial_statistics(problem, cut, self._tile), (own, full))
        combine = (calls.combine_statistics(problem, cut, *settings), (full, full, full, batches, full, full))
        return [partial, combine, activate]

    def _launch(self, name: Hashable, call: Call) -> Launch:
        """Make a launch and remember it by a name: all that it is made of besides problem and tiles."""
        if len(self._made) >= _MOST_REMEMBERED:
            self._made.clear()
        made = self._made[name] = Launch((name, self._size, self._problem), call)
        return made
