"""Algorithms of compiled kernels, whatever launches them: a pass is made for a problem once, and then takes tensors.

The language of the kernels decides how a launch is described, made and repeated (`triton.base`, `hip.base`); what they
read and write, and which problems none of them supports, is the same and stands here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import torch

from ..engines.bounded import Bounded
from ..engines.device_state import STATE
from ..engines.layout import strides
from .base import Algorithm, Bound, Grads, Wanted, common_reasons, quarantined
from .problem import ConvProblem, cdiv

Shape = tuple[int, ...]
Strides = tuple[int, ...]
Launches = TypeVar("Launches")
Gather = Callable[[torch.Tensor, torch.Tensor, "torch.Tensor | None"], torch.Tensor]
# The last argument: whether the gradient of a weight in half precision may come in fp32, with the same values.
GradWeight = Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor]
DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)
LARGEST: Final = 2**31
# Strides of tensors that a pass keeps launches for.
_KINDS: Final = 4


class Passes(NamedTuple):
    """The passes of an algorithm for one problem.

    Attributes:
        forward: Takes input, weight and bias.
        grad_input: Takes gradient, weight and no bias.
        grad_weight: Takes gradient, input, and whether the result may be wider.
    """

    forward: Gather
    grad_input: Gather
    grad_weight: GradWeight


_passes: dict[tuple[str, ConvProblem], Passes] = STATE.container(Bounded())


class LaunchedAlgorithm(Algorithm):
    """The methods of an algorithm, from the passes that a subclass makes for a problem."""

    activates: ClassVar[bool] = True

    @abstractmethod
    def made_passes(self, problem: ConvProblem) -> Passes:
        """Make the passes for a problem."""

    def passes(self, problem: ConvProblem) -> Passes:
        """Return the passes for a problem, made on first sight."""
        key = (self.name, problem)
        made = _passes.get(key)
        if made is None:
            made = _passes[key] = self.made_passes(problem)
        return made

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        return self.passes(problem).forward(x, weight, bias)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        return self.passes(problem).grad_input(grad, weight, None)

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight: partial sums over splits of the pixels, added in a fixed order."""
        return self.passes(problem).grad_weight(grad, x, False)

    def bound(self, problem: ConvProblem) -> Bound:
        """Return the passes with their launches at hand."""
        forward, grad_input, grad_weight = self.passes(problem)

        def backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: Wanted) -> Grads:
            # The weight's first: see `Algorithm.backward`.
            for_weight = grad_weight(grad, x, True in wanted[2:]) if wanted[1] else None
            return grad_input(grad, weight, None) if wanted[0] else None, for_weight

        return Bound(forward, backward)


class LaunchedPass(ABC, Generic[Launches]):
    """A pass of one problem, with its launches at hand for each kind of tensors that it has met.

    Args:
        problem: The problem.
        shape: Of the result.
    """

    def __init__(self, problem: ConvProblem, shape: Shape) -> None:
        self.problem, self.shape = problem, shape
        self.strides = strides(shape, problem.channels_last)
        self._made: dict[Hashable, Launches] = {}

    @abstractmethod
    def make(self, first: Strides, second: Strides, *kind: Any) -> Launches:
        """Make the launches for tensors with these strides, and whatever else decides."""

    def launches(self, *kind: Any) -> Launches:
        """Return the launches for a kind of tensors: the arguments of `make`."""
        try:
            return self._made[kind]
        except KeyError:
            if len(self._made) >= _KINDS:
                self._made.clear()
        made = self._made[kind] = self.make(*kind)
        return made


class Sides(NamedTuple):
    """What forward reads and writes, or grad-input.

    Attributes:
        src: Shape of the source.
        out: Shape of the result.
        channels: Of a group in the source.
        outputs: Channels of a group in the result.
        phase: Height and width of the result's largest stride phase, which is all of it in forward.
        phases: How many there are.
    """

    src: Shape
    out: Shape
    channels: int
    outputs: int
    phase: Shape
    phases: int

    @classmethod
    def of(cls, problem: ConvProblem, back: bool) -> Sides:
        """Return those of forward, or with `back` of grad-input."""
        (height, width), channels = problem.stride, problem.group_channels
        if not back:
            return cls(problem.input_shape, problem.output_shape, *channels, problem.output_size, 1)
        phase = tuple(cdiv(size, stride) for size, stride in zip(problem.input_size, problem.stride, strict=True))
        return cls(problem.output_shape, problem.input_shape, *channels[::-1], phase, height * width)


def geometry(problem: ConvProblem) -> dict[str, int]:
    """Return kernel, stride, padding and dilation, as kernels name them and in their order."""
    names = ("KH", "KW", "SH", "SW", "PH", "PW", "DH", "DW")
    values = (*problem.kernel, *problem.stride, *problem.padding, *problem.dilation)
    return dict(zip(names, values, strict=True))


def launched_reasons(
    problem: ConvProblem,
    algorithm: Algorithm,
    limits: Iterable[tuple[bool, str]],
    device_reason: Callable[[str], str | None],
) -> list[str]:
    """Return why kernels do not support a problem; the reasons of the device, a kernel or a tile on it, come last.

    Args:
        problem: The problem.
        algorithm: The algorithm.
        limits: Whether a limit of the kernels' language is exceeded, and the reason then.
        device_reason: Returns why there are no kernels for a device, None where there are.
    """
    reasons = common_reasons(problem, dimensions=2, groups=True)
    if reasons:
        return reasons
    if problem.dtype not in DTYPES:
        reasons.append(f"dtype {problem.dtype} is not float32, float16 or bfloat16")
    reasons += [why for exceeded, why in limits if exceeded]
    missing = device_reason(problem.device)
    return [*reasons, missing] if missing else reasons + quarantined(algorithm, problem)
