"""Passes of Triton algorithms for a problem that is met again and again: what is left of Python is memory and a launch.

On a fast GPU many layers in half precision take less time than Python needs for them: every microsecond of it counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

import torch

from ...engines.triton.launch import repeating
from ..kernels.calls import Strides, strides
from ..problem import ConvProblem
from .base import Algorithm, Bound, Grads
from .triton_common import shares_of, sum_key, tf32

Key = Callable[[Strides, Strides], Hashable]
# Strides that change from call to call are not followed for ever.
_ATTEMPTS: Final = 4
_Pack = Callable[[torch.Tensor], torch.Tensor]
_Pass = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def bound_passes(
    algorithm: Algorithm,
    problem: ConvProblem,
    forward_key: Key,
    forward_pack: _Pack,
    input_key: Key,
    input_pack: _Pack,
    weight_key: Key,
) -> Bound:
    """Return the passes of an algorithm that launches one kernel for each, and a sum after that of grad-weight.

    Args:
        algorithm: The algorithm, which computes a pass the first time, and where tensors are not like those before.
        problem: The problem.
        forward_key: Returns the key under which it launches, from the strides of input and packed weight.
        forward_pack: Lays the weight out as it does.
        input_key: The same for the gradient of the input, from the strides of gradient and packed weight.
        input_pack: The same.
        weight_key: The same for the gradient of the weight, from the strides of gradient and input.
    """

    def without_bias(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return algorithm.forward(problem, x, weight, None)

    once = _one_launch(problem, problem.output_shape, without_bias, forward_key, forward_pack)
    grad_input = _one_launch(
        problem, problem.input_shape, partial(algorithm.grad_input, problem), input_key, input_pack
    )
    grad_weight = _shares_and_sum(problem, partial(algorithm.grad_weight, problem), weight_key)

    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return once(x, weight) if bias is None else algorithm.forward(problem, x, weight, bias)

    def backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: tuple[bool, bool]) -> Grads:
        for_weight = grad_weight(grad, x) if wanted[1] else None  # first: see `Algorithm.backward`
        return grad_input(grad, weight) if wanted[0] else None, for_weight

    return Bound(forward, backward)


def _one_launch(problem: ConvProblem, shape: tuple[int, ...], first: _Pass, key: Key, pack: _Pack) -> _Pass:
    by = strides(shape, problem.channels_last)
    known: tuple[Callable[..., bool], Strides, Strides, bool, bool] | None = None
    attempts = _ATTEMPTS

    def run(source: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        nonlocal known, attempts
        if known is not None:
            again, of_source, of_weight, packing, allowed = known
            if source.stride() == of_source and weight.stride() == of_weight and tf32(problem) == allowed:
                result = source.new_empty_strided(shape, by)
                read, at = pack(weight) if packing else weight, source.data_ptr()
                if again(source.get_device(), at, read.data_ptr(), at, result.data_ptr()):  # no bias: anything
                    return result
        result = first(source, weight)
        if attempts:
            attempts -= 1
            packed = pack(weight)
            launched = repeating(key(source.stride(), packed.stride()))
            if launched is not None:
                packing = packed.data_ptr() != weight.data_ptr()
                known = launched, source.stride(), weight.stride(), packing, tf32(problem)
        return result

    return run


def _shares_and_sum(problem: ConvProblem, first: _Pass, key: Key) -> _Pass:
    shape, by = problem.weight_shape, strides(problem.weight_shape, problem.channels_last)
    known: tuple[Callable[..., bool], Callable[..., bool], int, Strides, Strides, bool] | None = None
    attempts = _ATTEMPTS

    def run(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        nonlocal known, attempts
        if known is not None:
            share, add, size, of_grad, of_x, allowed = known
            if grad.stride() == of_grad and x.stride() == of_x and tf32(problem) == allowed:
                partial_sums = x.new_empty(size, dtype=torch.float32)
                result = x.new_empty_strided(shape, by)
                number, between = x.get_device(), partial_sums.data_ptr()
                if share(number, x.data_ptr(), grad.data_ptr(), between) and add(number, between, result.data_ptr()):
                    return result
        result = first(grad, x)
        if attempts:
            attempts -= 1
            own = key(grad.stride(), x.stride())
            shares = shares_of(own)
            launched, summed = repeating(own), repeating(sum_key(problem, shares))
            if launched is not None and summed is not None:
                size = shares * math.prod(shape)
                known = launched, summed, size, grad.stride(), x.stride(), tf32(problem)
        return result

    return run
