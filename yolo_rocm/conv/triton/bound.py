"""Passes of Triton algorithms for a problem that is met again and again: what is left of Python is memory and a launch.

On a fast GPU many layers in half precision take less time than Python needs for them: every microsecond of it counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

import torch

from ...engines.names import Pass
from ...engines.triton.launch import repeating
from ..base import Algorithm, Bound, Grads, Wanted
from ..problem import ConvProblem
from .calls import Strides, strides
from .common import splits_of, sum_key, tf32

Key = Callable[[Pass, Strides, Strides], Hashable]
Pack = Callable[[Pass, torch.Tensor], torch.Tensor]
# Strides that change from call to call are followed this often.
_ATTEMPTS: Final = 4
_Pass = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def bound_passes(
    algorithm: Algorithm, problem: ConvProblem, key: Key, pack: Pack, grad_weight_in: Callable[..., torch.Tensor]
) -> Bound:
    """Return the passes of an algorithm that launches one kernel for each, and a sum after that of grad-weight.

    Args:
        algorithm: The algorithm, which computes a pass the first time, and where tensors are not like those before.
        problem: The problem.
        key: Returns the key of its launch for a pass, from the strides of input and packed weight, of gradient and
            packed weight, or of gradient and input.
        pack: Returns the weight in the layout that it reads in a pass.
        grad_weight_in: Returns the gradient of the weight from gradient and input, in the data type `dtype`.
    """

    def without_bias(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return algorithm.forward(problem, x, weight, None)

    once = _one_launch(problem, Pass.FORWARD, problem.output_shape, without_bias, key, pack)
    first = partial(algorithm.grad_input, problem)
    grad_input = _one_launch(problem, Pass.GRAD_INPUT, problem.input_shape, first, key, pack)
    grad_weight, widened = (
        _partials_and_sum(problem, dtype, partial(grad_weight_in, dtype=dtype), key)
        for dtype in (problem.dtype, torch.float32)
    )

    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return once(x, weight) if bias is None else algorithm.forward(problem, x, weight, bias)

    def backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: Wanted) -> Grads:
        weighed = widened if True in wanted[2:] else grad_weight
        for_weight = weighed(grad, x) if wanted[1] else None  # first: see `Algorithm.backward`
        return grad_input(grad, weight) if wanted[0] else None, for_weight

    return Bound(forward, backward)


def _one_launch(problem: ConvProblem, which: Pass, shape: tuple[int, ...], first: _Pass, key: Key, pack: Pack) -> _Pass:
    by = strides(shape, problem.channels_last)
    known: tuple[Callable[..., bool], Strides, Strides, bool, bool] | None = None
    attempts = _ATTEMPTS

    def run(source: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        nonlocal known, attempts
        if known is not None:
            again, of_source, of_weight, packing, allowed = known
            if source.stride() == of_source and weight.stride() == of_weight and tf32(problem) == allowed:
                result = source.new_empty_strided(shape, by)
                read, at = pack(which, weight) if packing else weight, source.data_ptr()
                if again(source.get_device(), at, read.data_ptr(), at, result.data_ptr()):  # no bias: anything
                    return result
        result = first(source, weight)
        if attempts:
            attempts -= 1
            packed = pack(which, weight)
            launched = repeating(key(which, source.stride(), packed.stride()))
            if launched is not None:
                packing = packed.data_ptr() != weight.data_ptr()
                known = launched, source.stride(), weight.stride(), packing, tf32(problem)
        return result

    return run


def _partials_and_sum(problem: ConvProblem, dtype: torch.dtype, first: _Pass, key: Key) -> _Pass:
    shape, by = problem.weight_shape, strides(problem.weight_shape, problem.channels_last)
    known: tuple[Callable[..., bool], Callable[..., bool], int, Strides, Strides, bool] | None = None
    attempts = _ATTEMPTS

    def run(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        nonlocal known, attempts
        if known is not None:
            partials, add, size, of_grad, of_x, allowed = known
            if grad.stride() == of_grad and x.stride() == of_x and tf32(problem) == allowed:
                partial_sums = x.new_empty(size, dtype=torch.float32)
                result = x.new_empty_strided(shape, by, dtype=dtype)
                number, between = x.get_device(), partial_sums.data_ptr()
                if partials(number, x.data_ptr(), grad.data_ptr(), between) and add(number, between, result.data_ptr()):
                    return result
        result = first(grad, x)
        if attempts:
            attempts -= 1
            own = key(Pass.GRAD_WEIGHT, grad.stride(), x.stride())
            splits = splits_of(own)
            launched, summed = repeating(own), repeating(sum_key(problem, splits, dtype))
            if launched is not None and summed is not None:
                size = splits * math.prod(shape)
                known = launched, summed, size, grad.stride(), x.stride(), tf32(problem)
        return result

    return run
