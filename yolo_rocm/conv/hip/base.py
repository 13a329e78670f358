"""An algorithm of engine hip: the launches of each pass, described once for a problem and its strides."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from operator import mul
from typing import ClassVar

import torch

from ...engines.hip.available import device_reason
from ...engines.layout import strides
from ...engines.names import Pass
from ..base import Algorithm, Bound, Grads, Wanted, common_reasons, quarantined
from ..problem import ConvProblem, laid_out, suggests_channels_last
from . import calls
from .calls import STORAGE, HipCall, Strides
from .launching import launch_of, prepare

_LARGEST = 2**31


@dataclass(frozen=True)
class PassCalls:
    """The launches of a pass: of its kernel, and of what comes before (a packed weight) or after it (a sum).

    Attributes:
        kernel: The launch that does the work.
        other: The launch before or after; None where there is none.
        between: Elements of the memory between the two.
    """

    kernel: HipCall
    other: HipCall | None = None
    between: int = 0


class HipAlgorithm(Algorithm):
    """The three passes, from the launches that a subclass describes."""

    engine: ClassVar[str] = "hip"
    activates: ClassVar[bool] = True

    @abstractmethod
    def gather_steps(
        self,
        problem: ConvProblem,
        back: bool,
        src: Strides,
        weight: Strides,
        out: Strides,
    ) -> PassCalls:
        """Describe forward, or with `back` grad-input; tensors of the kernel: source, weight, bias or None, result."""

    @abstractmethod
    def weight_steps(self, problem: ConvProblem, grad: Strides, x: Strides) -> tuple[HipCall, int]:
        """Describe grad-weight and its number of splits; tensors of the kernel: gradient, input, partial sums."""

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """A packed weight, or the partial sums of the gradient of the weight."""
        most = 0
        for last in (False, True):
            x, y, w = (strides(shape, last) for shape in _shapes(problem))
            _, splits = self.weight_steps(problem, y, x)
            packed = max(self.gather_steps(problem, back, x, w, y).between for back in (False, True))
            most = max(most, splits * math.prod(problem.weight_shape), packed)
        return most * 4

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        return self.bound(problem).forward(x, weight, bias)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        return Gather(self, problem, back=True)(grad, weight, None)

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight: partial sums over splits of the pixels, added in a fixed order."""
        return _Weight(self, problem)(grad, x)

    def bound(self, problem: ConvProblem) -> Bound:
        """Return the passes with their launches at hand."""
        return Bound(
            Gather(self, problem, back=False),
            partial(_backward, Gather(self, problem, back=True), _Weight(self, problem)),
        )

    def prepare(self, problem: ConvProblem, which: Pass) -> None:
        """Compile what a pass launches."""
        x, y, w = (strides(shape, problem.channels_last) for shape in _shapes(problem))
        if which == "grad_weight":
            call, splits = self.weight_steps(problem, y, x)
            prepare(calls.sum_partials(problem, splits, w), problem.device)
            prepare(call, problem.device)
            return
        back = which == Pass.GRAD_INPUT
        steps = self.gather_steps(problem, back, *((y, w, x) if back else (x, w, y)))
        if steps.other is not None:
            prepare(steps.other, problem.device)
        prepare(steps.kernel, problem.device)


class Gather:
    """Forward or grad-input of one problem; launches are looked up again only where strides change.

    Args:
        algorithm: Describes the launches.
        problem: The problem.
        back: Whether it is grad-input.
    """

    def __init__(self, algorithm: HipAlgorithm, problem: ConvProblem, back: bool) -> None:
        self._algorithm, self._problem, self._back = algorithm, problem, back
        self._shape = problem.input_shape if back else problem.output_shape
        self._strides = strides(self._shape, problem.channels_last)
        self._known: tuple[object, ...] = ()
        self._source: Strides = ()
        self._in_place = False

    def __call__(self, src: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Compute the pass; the weight is packed first, where the kernel reads it so."""
        if src.stride() != self._source:
            self._source, self._in_place = src.stride(), self._is_read_in_place(src)
        if not self._in_place or src.data_ptr() % (4 * src.element_size()):
            src = readable(src)
        found = self._known
        if not found or found[0] != src.stride() or found[1] != weight.stride():
            found = self._known = self._look_up(src.stride(), weight.stride())
        _, _, kernel, pack, between = found
        out = src.new_empty_strided(self._shape, self._strides)
        if bias is not None:
            bias = bias.to(src.dtype).contiguous()
        if pack is not None:
            packed = src.new_empty(between)  # type: ignore[call-overload]
            pack(weight.data_ptr(), packed.data_ptr())  # type: ignore[operator]
            weight = packed
        at = 0 if bias is None else bias.data_ptr()
        kernel(src.data_ptr(), weight.data_ptr(), at, out.data_ptr())  # type: ignore[operator]
        return out

    def _is_read_in_place(self, src: torch.Tensor) -> bool:
        """Return whether a source is whole, or a view for the kernel of whole ones: no other one was examined."""
        problem, shape, by = self._problem, tuple(src.shape), src.stride()
        if by in (strides(shape, False), strides(shape, True)):
            return True
        # Offsets have 32 bits: see `hip_reasons`. A stride of a size of 1 may be anything.
        reach = by[0] * (2 + 512 // max(1, math.prod(shape[2:]))) + sum(map(mul, shape[1:], by[1:]))
        weight = strides(problem.weight_shape, problem.channels_last)
        view, whole = (
            self._algorithm.gather_steps(problem, self._back, each, weight, self._strides).kernel
            for each in (by, strides(shape, problem.channels_last))
        )
        return reach < _LARGEST and view.defines == whole.defines

    def _look_up(self, src: Strides, weight: Strides) -> tuple[object, ...]:
        steps = self._algorithm.gather_steps(self._problem, self._back, src, weight, self._strides)
        device = self._problem.device
        pack = None if steps.other is None else launch_of(steps.other, device)
        return (src, weight, launch_of(steps.kernel, device), pack, steps.between)


class _Weight:
    """Grad-weight of one problem; launches are looked up again only where strides change."""

    def __init__(self, algorithm: HipAlgorithm, problem: ConvProblem) -> None:
        self._algorithm, self._problem = algorithm, problem
        self._strides = strides(problem.weight_shape, problem.channels_last)
        self._known: tuple[object, ...] = ()

    def __call__(self, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        grad, x = readable(grad), readable(x)
        found = self._known
        if not found or found[0] != grad.stride() or found[1] != x.stride():
            found = self._known = self._look_up(grad.stride(), x.stride())
        _, _, kernel, add, elements = found
        partials = x.new_empty(elements, dtype=torch.float32)  # type: ignore[call-overload]
        result = x.new_empty_strided(self._problem.weight_shape, self._strides)
        kernel(grad.data_ptr(), x.data_ptr(), partials.data_ptr())  # type: ignore[operator]
        add(partials.data_ptr(), result.data_ptr())  # type: ignore[operator]
        return result

    def _look_up(self, grad: Strides, x: Strides) -> tuple[object, ...]:
        problem = self._problem
        call, splits = self._algorithm.weight_steps(problem, grad, x)
        add = calls.sum_partials(problem, splits, self._strides)
        elements = splits * math.prod(problem.weight_shape)
        return (grad, x, launch_of(call, problem.device), launch_of(add, problem.device), elements)


def _backward(
    grad_input: Gather,
    grad_weight: _Weight,
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    wanted: Wanted,
) -> Grads:
    for_weight = grad_weight(grad, x) if wanted[1] else None  # first: see `Algorithm.backward`
    return grad_input(grad, weight, None) if wanted[0] else None, for_weight


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in one of the two layouts, at an address that four values can be read from: most often itself."""
    shape = tuple(tensor.shape)
    if tensor.stride() not in (strides(shape, False), strides(shape, True)):
        tensor = laid_out(tensor, suggests_channels_last(tensor))
    aligned = tensor.data_ptr() % (4 * tensor.element_size()) == 0
    return tensor if aligned else tensor.clone(memory_format=torch.preserve_format)


def hip_reasons(problem: ConvProblem, algorithm: Algorithm) -> list[str]:
    """Return the reasons every algorithm of the engine shares; those of the device come last."""
    reasons = common_reasons(problem, dimensions=2, groups=True)
    if reasons:
        return reasons
    if problem.dtype not in STORAGE:
        reasons.append(f"dtype {problem.dtype} is not float32, float16 or bfloat16")
    shapes = (problem.input_shape, problem.output_shape)
    # A tile's offsets are from its first sample: with small images it has several of them.
    if any(math.prod(shape[1:]) * (2 + 512 // max(1, math.prod(shape[2:]))) >= _LARGEST for shape in shapes):
        reasons.append("a sample is too large for offsets of 32 bits")
    if any(shape[0] * math.prod(shape[2:]) + 512 >= _LARGEST for shape in shapes):
        reasons.append("the pixels of the batch are 2**31 or more")
    if problem.groups >= 2**16 or math.prod(problem.stride) >= 2**16:
        reasons.append(f"{problem.groups} groups are more than a launch takes")
    missing = device_reason(problem.device)
    if missing:
        return [*reasons, missing]
    return reasons + quarantined(algorithm, problem)


def _shapes(problem: ConvProblem) -> tuple[tuple[int, ...], ...]:
    return problem.input_shape, problem.output_shape, problem.weight_shape
