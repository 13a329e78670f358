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

Key = Callable[[Pass, Strides, Strides, bool], Hashable]
Pack = Callable[[Pass, torch.Tensor], torch.Tensor]
Repeat = Callable[..., bool]
# Strides that change from call to call are followed this often.
_ATTEMPTS: Final = 4


def bound_passes(
    algorithm: Algorithm, problem: ConvProblem, key: Key, pack: Pack, grad_weight_in: Callable[..., torch.Tensor]
) -> Bound:
    """Return the passes of an algorithm that launches one kernel for each, and a sum after that of grad-weight.

    Args:
        algorithm: The algorithm, which computes a pass the first time, and where tensors are not like those before.
        problem: The problem.
        key: Returns the key of its launch for a pass, from the strides of input and packed weight, of gradient and
            packed weight, or of gradient and input, and whether there is a bias.
        pack: Returns the weight in the layout that it reads in a pass.
        grad_weight_in: Returns the gradient of the weight from gradient and input, in the data type `dtype`.
    """
    plain, biased = (_Gather(Pass.FORWARD, algorithm, problem, key, pack, bias) for bias in (False, True))
    grad_input = _Gather(Pass.GRAD_INPUT, algorithm, problem, key, pack, False)
    grad_weight, widened = (
        _GradWeight(problem, dtype, partial(grad_weight_in, dtype=dtype), key)
        for dtype in (problem.dtype, torch.float32)
    )

    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return plain(x, weight, x) if bias is None else biased(x, weight, bias.contiguous())

    def backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: Wanted) -> Grads:
        weighed = widened if True in wanted[2:] else grad_weight
        for_weight = weighed(grad, x) if wanted[1] else None  # first: see `Algorithm.backward`
        return grad_input(grad, weight, grad) if wanted[0] else None, for_weight

    return Bound(forward, backward)


class _Repeatable:
    """Launches that are at hand, and what tensors have to be like for them."""

    __slots__ = ("attempts", "first", "problem", "second", "tf32")

    def __init__(self, problem: ConvProblem) -> None:
        self.problem, self.attempts = problem, _ATTEMPTS
        self.first: Strides = ()
        self.second: Strides = ()
        self.tf32 = False

    def fits(self, first: torch.Tensor, second: torch.Tensor) -> bool:
        """Return whether tensors are like those of the launches."""
        alike = first.stride() == self.first and second.stride() == self.second
        return alike and tf32(self.problem) == self.tf32

    def note(self, first: torch.Tensor, second: torch.Tensor) -> None:
        """Note what the tensors of the launches are like."""
        self.first, self.second, self.tf32 = first.stride(), second.stride(), tf32(self.problem)


class _Gather(_Repeatable):
    """Forward or grad-input: one launch that reads a source and a weight, and a bias or anything."""

    __slots__ = ("algorithm", "bias", "key", "launch", "pack", "packing", "shape", "strides", "which")

    def __init__(
        self, which: Pass, algorithm: Algorithm, problem: ConvProblem, key: Key, pack: Pack, bias: bool
    ) -> None:
        super().__init__(problem)
        self.which, self.algorithm, self.key, self.pack, self.bias = which, algorithm, key, pack, bias
        self.shape = problem.input_shape if which == Pass.GRAD_INPUT else problem.output_shape
        self.strides = strides(self.shape, problem.channels_last)
        self.launch: Repeat | None = None
        self.packing = False

    def __call__(self, source: torch.Tensor, weight: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        if self.launch is not None and self.fits(source, weight):
            result = source.new_empty_strided(self.shape, self.strides)
            read = self.pack(self.which, weight) if self.packing else weight
            addresses = source.data_ptr(), read.data_ptr(), added.data_ptr(), result.data_ptr()
            if self.launch(source.get_device(), *addresses):
                return result
        if self.which == Pass.GRAD_INPUT:
            result = self.algorithm.grad_input(self.problem, source, weight)
        else:
            result = self.algorithm.forward(self.problem, source, weight, added if self.bias else None)
        if self.attempts:
            self.attempts -= 1
            packed = self.pack(self.which, weight)
            launch = repeating(self.key(self.which, source.stride(), packed.stride(), self.bias))
            if launch is not None:
                self.launch, self.packing = launch, packed.data_ptr() != weight.data_ptr()
                self.note(source, weight)
        return result


class _GradWeight(_Repeatable):
    """The gradient of a weight: a launch that writes partial sums, and one that adds them."""

    __slots__ = ("compute", "dtype", "key", "launches", "size", "strides")

    def __init__(
        self, problem: ConvProblem, dtype: torch.dtype, compute: Callable[..., torch.Tensor], key: Key
    ) -> None:
        super().__init__(problem)
        self.dtype, self.compute, self.key = dtype, compute, key
        self.strides = strides(problem.weight_shape, problem.channels_last)
        self.launches: tuple[Repeat, Repeat] | None = None
        self.size = 0

    def __call__(self, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        shape = self.problem.weight_shape
        if self.launches is not None and self.fits(grad, x):
            write, add = self.launches
            partials = x.new_empty(self.size, dtype=torch.float32)
            result = x.new_empty_strided(shape, self.strides, dtype=self.dtype)
            number, between = x.get_device(), partials.data_ptr()
            if write(number, x.data_ptr(), grad.data_ptr(), between) and add(number, between, result.data_ptr()):
                return result
        result = self.compute(grad, x)
        if self.attempts:
            self.attempts -= 1
            key = self.key(Pass.GRAD_WEIGHT, grad.stride(), x.stride(), False)
            splits = splits_of(key)
            write_again, add_again = repeating(key), repeating(sum_key(self.problem, splits, self.dtype))
            if write_again is not None and add_again is not None:
                self.launches, self.size = (write_again, add_again), splits * math.prod(shape)
                self.note(grad, x)
        return result
