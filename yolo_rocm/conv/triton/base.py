"""A Triton algorithm: one launch for each pass; that of grad-weight writes partial sums, and a second one adds them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable
from functools import partial
from typing import ClassVar

import torch

from ...engines.names import Pass
from ...engines.triton.call import Call
from ...engines.triton.launch import launch, prepare
from ..base import Algorithm, Bound
from ..problem import ConvProblem
from . import calls
from .bound import bound_passes
from .calls import Strides, strides
from .common import empty_for, remembered, sum_key, tf32


class TritonAlgorithm(Algorithm):
    """The three passes, from the launches and the layout of the weight that a subclass describes."""

    engine: ClassVar[str] = "triton"
    activates: ClassVar[bool] = True
    packs: ClassVar[bool] = False  # whether `packed` copies weights

    @abstractmethod
    def forward_call(self, problem: ConvProblem, x: Strides, weight: Strides, y: Strides, bias: bool) -> Call:
        """Describe the launch of the forward pass; tensors: input, packed weight, bias or anything, output."""

    @abstractmethod
    def grad_input_call(self, problem: ConvProblem, grad: Strides, weight: Strides, gx: Strides) -> Call:
        """Describe the launch of grad-input; tensors: gradient, packed weight, anything, result."""

    @abstractmethod
    def grad_weight_call(self, problem: ConvProblem, grad: Strides, x: Strides) -> tuple[Call, int]:
        """Describe the launch of grad-weight and its number of splits; tensors: input, gradient, partial sums."""

    def packed(self, which: Pass, weight: torch.Tensor) -> torch.Tensor:
        """Return the weight in the layout that a pass reads."""
        return weight

    def packed_strides(self, problem: ConvProblem, which: Pass) -> Strides:
        """Return the strides of a weight in the layout that a pass reads."""
        return strides(problem.weight_shape, problem.channels_last)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """A packed weight, or the partial sums of the gradient of the weight."""
        # A gradient may come in the other layout, in which steps, and with them splits, may be other ones.
        shapes = (problem.output_shape, problem.input_shape)
        layouts = ([strides(shape, last) for shape in shapes] for last in (False, True))
        splits = max(self.grad_weight_call(problem, *by)[1] for by in layouts)
        return (splits + self.packs) * math.prod(problem.weight_shape) * 4

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        y = empty_for(problem, problem.output_shape, x)
        weight = self.packed(Pass.FORWARD, weight)
        launch(
            self.key(problem, Pass.FORWARD, x.stride(), weight.stride(), bias is not None),
            lambda: self.forward_call(problem, x.stride(), weight.stride(), y.stride(), bias is not None),
            (x, weight, x if bias is None else bias.contiguous(), y),
        )
        return y

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        gx = empty_for(problem, problem.input_shape, grad)
        weight = self.packed(Pass.GRAD_INPUT, weight)
        launch(
            self.key(problem, Pass.GRAD_INPUT, grad.stride(), weight.stride()),
            lambda: self.grad_input_call(problem, grad.stride(), weight.stride(), gx.stride()),
            (grad, weight, grad, gx),
        )
        return gx

    def grad_weight(
        self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Compute the gradient of the weight: partial sums over splits of the pixels, added in a fixed order.

        Args:
            problem: The problem.
            grad: Gradient of the output.
            x: The input.
            dtype: Data type of the result, where it is not the problem's; its values are those of the problem's.
        """
        key = self.key(problem, Pass.GRAD_WEIGHT, grad.stride(), x.stride())
        call, splits = remembered(key, lambda: self.grad_weight_call(problem, grad.stride(), x.stride()))
        partials = x.new_empty((splits * math.prod(problem.weight_shape),), dtype=torch.float32)
        launch(key, lambda: call, (x, grad, partials))
        gw = empty_for(problem, problem.weight_shape, partials, dtype)
        key = sum_key(problem, splits, gw.dtype)
        wide = gw.dtype != problem.dtype
        launch(key, lambda: calls.sum_partials(problem, splits, gw.stride(), wide), (partials, gw))
        return gw

    def bound(self, problem: ConvProblem) -> Bound:
        """Return the passes with their launches at hand."""
        key, grad_weight = partial(self.key, problem), partial(self.grad_weight, problem)
        return bound_passes(self, problem, key, self.packed, grad_weight)

    def key(self, problem: ConvProblem, which: Pass, first: Strides, second: Strides, bias: bool = False) -> Hashable:
        """Return all that a launch is made from; the strides are those of source and weight, or gradient and input."""
        return (self.name, which, problem, first, second, bias, tf32(problem))

    def prepare(self, problem: ConvProblem, which: Pass) -> None:
        """Compile what a pass launches."""
        self.prepare_reading(problem, which, problem.channels_last)

    def prepare_reading(self, problem: ConvProblem, which: Pass, channels_last: bool) -> None:
        """Compile what a pass launches, where the operands are channels_last or not, whatever the result is."""
        x, y = strides(problem.input_shape, channels_last), strides(problem.output_shape, channels_last)
        weight = self.packed_strides(problem, which)
        dtypes: tuple[torch.dtype, ...] = (problem.dtype,) * 4
        if which == "forward":
            call = self.forward_call(
                problem, x, weight, strides(problem.output_shape, problem.channels_last), problem.bias
            )
        elif which == "grad_input":
            call = self.grad_input_call(problem, y, weight, strides(problem.input_shape, problem.channels_last))
        else:
            call, _ = self.grad_weight_call(problem, y, x)
            dtypes = (problem.dtype, problem.dtype, torch.float32)
        prepare(call, dtypes, problem.device)
