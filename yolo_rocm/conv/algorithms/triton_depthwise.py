"""Depthwise convolutions in Triton: each value is read once for all taps that meet it, as far as caches go."""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import partial
from typing import ClassVar

import torch

from ...engines.triton.available import family, processors
from ...engines.triton.launch import launch, prepare
from ..kernels import calls
from ..kernels.calls import is_half, strides
from ..kernels.tiles import Block, block
from ..problem import ConvProblem
from .base import Algorithm, Bound
from .triton_bound import bound_passes
from .triton_common import add_shares, empty_for, remembered, triton_reasons

# Grad-weight keeps a sum for every tap: with more of them than this, registers run out.
_MOST_TAPS = 64


class TritonDepthwise(Algorithm):
    """One program for a block of pixels and channels, all taps inside."""

    name: ClassVar[str] = "triton_depthwise"
    engine: ClassVar[str] = "triton"
    kernel: ClassVar[str | None] = "depthwise"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve one input channel a group, and kernels of up to 64 taps."""
        reasons = []
        if problem.groups != problem.in_channels or problem.groups == 1:
            reasons.append(f"{problem.in_channels} channels in {problem.groups} groups are not depthwise")
        if math.prod(problem.kernel) > _MOST_TAPS:
            reasons.append(f"{math.prod(problem.kernel)} taps are more than {_MOST_TAPS}")
        return reasons + triton_reasons(problem, self)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """The partial sums of the gradient of the weight."""
        by = [strides(shape, problem.channels_last) for shape in (problem.output_shape, problem.input_shape)]
        shares = calls.depthwise_weight(problem, by[0], by[1], _block(problem), processors(problem.device))[1]
        return shares * math.prod(problem.weight_shape) * 4

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        y = empty_for(problem, problem.output_shape, x)
        launch(
            self._key("forward", problem, x.stride(), weight.stride(), bias is not None),
            lambda: calls.depthwise(
                problem, x.stride(), weight.stride(), y.stride(), bias is not None, _block(problem), back=False
            ),
            (x, weight, x if bias is None else bias, y),
        )
        return y

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        gx = empty_for(problem, problem.input_shape, grad)
        launch(
            self._key("grad_input", problem, grad.stride(), weight.stride()),
            lambda: calls.depthwise(
                problem, grad.stride(), weight.stride(), gx.stride(), False, _block(problem), back=True
            ),
            (grad, weight, grad, gx),
        )
        return gx

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        key = self._key("grad_weight", problem, grad.stride(), x.stride())
        known = processors(problem.device)
        call, shares = remembered(
            key, lambda: calls.depthwise_weight(problem, grad.stride(), x.stride(), _block(problem), known)
        )
        partial = x.new_empty((shares * math.prod(problem.weight_shape),), dtype=torch.float32)
        launch(key, lambda: call, (x, grad, partial))
        return add_shares(problem, partial, shares)

    def bound(self, problem: ConvProblem) -> Bound:
        """Return the passes with their launches at hand."""
        keys = [partial(self._key, which, problem) for which in ("forward", "grad_input", "grad_weight")]
        return bound_passes(self, problem, keys[0], _as_it_is, keys[1], _as_it_is, keys[2])

    def _key(
        self, which: str, problem: ConvProblem, first: calls.Strides, second: calls.Strides, bias: bool = False
    ) -> Hashable:
        """Return all that a launch is made from; the strides are those of source and weight, or gradient and input."""
        return (self.name, which, problem, first, second, bias)

    def prepare(self, problem: ConvProblem, which: str) -> None:
        """Compile what a pass launches."""
        x, y = (strides(shape, problem.channels_last) for shape in (problem.input_shape, problem.output_shape))
        weight = strides(problem.weight_shape, problem.channels_last)
        if which == "grad_weight":
            call = calls.depthwise_weight(problem, y, x, _block(problem), processors(problem.device))[0]
            prepare(call, (problem.dtype, problem.dtype, torch.float32), problem.device)
            return
        back = which == "grad_input"
        src, out = (y, x) if back else (x, y)
        call = calls.depthwise(problem, src, weight, out, False, _block(problem), back)
        prepare(call, (problem.dtype,) * 4, problem.device)


def _as_it_is(weight: torch.Tensor) -> torch.Tensor:
    return weight


def _block(problem: ConvProblem) -> Block:
    return block(family(problem.device), problem.channels_last, is_half(problem), math.prod(problem.kernel))
