"""An algorithm of engine hip: the launches of each pass, described once for a problem and its strides."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from operator import mul
from typing import ClassVar, NamedTuple

import torch

from ...engines.hip.available import device_reason
from ...engines.hip.program import Launch
from ...engines.layout import strides
from ...engines.names import Pass
from ..base import Algorithm
from ..launched import LARGEST, LaunchedAlgorithm, LaunchedPass, Passes, Sides, Strides, launched_reasons
from ..problem import ConvProblem, laid_out, suggests_channels_last
from . import calls
from .calls import HipCall
from .launching import launch_of, prepare


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


class HipAlgorithm(LaunchedAlgorithm):
    """The three passes, from the launches that a subclass describes."""

    engine: ClassVar[str] = "hip"

    @abstractmethod
    def gather_steps(self, problem: ConvProblem, back: bool, src: Strides, weight: Strides, out: Strides) -> PassCalls:
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

    def made_passes(self, problem: ConvProblem) -> Passes:
        """Make the passes for a problem."""
        return Passes(_Gather(self, problem, False), _Gather(self, problem, True), _GradWeight(self, problem))

    def prepare(self, problem: ConvProblem, which: Pass) -> None:
        """Compile what a pass launches."""
        x, y, w = (strides(shape, problem.channels_last) for shape in _shapes(problem))
        if which == Pass.GRAD_WEIGHT:
            call, splits = self.weight_steps(problem, y, x)
            prepare(calls.sum_partials(problem, splits, w), problem.device)
            prepare(call, problem.device)
            return
        back = which == Pass.GRAD_INPUT
        steps = self.gather_steps(problem, back, *((y, w, x) if back else (x, w, y)))
        if steps.other is not None:
            prepare(steps.other, problem.device)
        prepare(steps.kernel, problem.device)


class _GatherLaunches(NamedTuple):
    """The launch of forward or grad-input, that which packs the weight before, and the elements that it writes."""

    kernel: Launch
    pack: Launch | None
    packed: int


class _Gather(LaunchedPass[_GatherLaunches | None]):
    """Forward or grad-input of one problem."""

    def __init__(self, algorithm: HipAlgorithm, problem: ConvProblem, back: bool) -> None:
        sides = Sides.of(problem, back)
        super().__init__(problem, sides.out)
        self._algorithm, self._back, self._source = algorithm, back, sides.src

    def __call__(self, src: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Compute the pass; the weight is packed first, where the kernel reads it so."""
        launches = self.launches(src.stride(), weight.stride())
        if launches is None or src.data_ptr() % (4 * src.element_size()):
            src = readable(src)
            launches = self.launches(src.stride(), weight.stride())
            assert launches is not None  # of whole tensors
        out = src.new_empty_strided(self.shape, self.strides)
        if bias is not None:
            bias = bias.to(src.dtype).contiguous()
        if launches.pack is not None:
            packed = src.new_empty(launches.packed)
            launches.pack(weight.data_ptr(), packed.data_ptr())
            weight = packed
        at = 0 if bias is None else bias.data_ptr()
        launches.kernel(src.data_ptr(), weight.data_ptr(), at, out.data_ptr())
        return out

    def make(self, src: Strides, weight: Strides, *kind: object) -> _GatherLaunches | None:
        """Look up the launches; None for a source that no kernel reads where it is."""
        steps = self._algorithm.gather_steps(self.problem, self._back, src, weight, self.strides)
        if not self._is_read_in_place(src, weight, steps):
            return None
        device = self.problem.device
        pack = None if steps.other is None else launch_of(steps.other, device)
        return _GatherLaunches(launch_of(steps.kernel, device), pack, steps.between)

    def _is_read_in_place(self, src: Strides, weight: Strides, steps: PassCalls) -> bool:
        """Return whether a source is whole, or a view for the kernel of whole ones: no other one was examined."""
        shape = self._source
        if src in (strides(shape, False), strides(shape, True)):
            return True
        # Offsets have 32 bits: see `hip_reasons`. A stride of a size of 1 may be anything.
        reach = src[0] * (2 + 512 // max(1, math.prod(shape[2:]))) + sum(map(mul, shape[1:], src[1:]))
        usual = strides(shape, self.problem.channels_last)
        whole = self._algorithm.gather_steps(self.problem, self._back, usual, weight, self.strides)
        return reach < LARGEST and steps.kernel.defines == whole.kernel.defines


class _GradWeightLaunches(NamedTuple):
    """The launch that writes partial sums, the one that adds them, and how many numbers they are."""

    write: Launch
    add: Launch
    partials: int


class _GradWeight(LaunchedPass[_GradWeightLaunches]):
    """Grad-weight of one problem."""

    def __init__(self, algorithm: HipAlgorithm, problem: ConvProblem) -> None:
        super().__init__(problem, problem.weight_shape)
        self._algorithm = algorithm

    def __call__(self, grad: torch.Tensor, x: torch.Tensor, wide: bool) -> torch.Tensor:
        """Compute the pass, in the problem's data type whether or not a wider one would do."""
        grad, x = readable(grad), readable(x)
        launches = self.launches(grad.stride(), x.stride())
        partials = x.new_empty(launches.partials, dtype=torch.float32)
        result = x.new_empty_strided(self.shape, self.strides)
        launches.write(grad.data_ptr(), x.data_ptr(), partials.data_ptr())
        launches.add(partials.data_ptr(), result.data_ptr())
        return result

    def make(self, grad: Strides, x: Strides, *kind: object) -> _GradWeightLaunches:
        """Look up both launches."""
        problem = self.problem
        call, splits = self._algorithm.weight_steps(problem, grad, x)
        add = calls.sum_partials(problem, splits, self.strides)
        partials = splits * math.prod(self.shape)
        return _GradWeightLaunches(launch_of(call, problem.device), launch_of(add, problem.device), partials)


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in one of the two layouts, at an address that four values can be read from: most often itself."""
    shape = tuple(tensor.shape)
    if tensor.stride() not in (strides(shape, False), strides(shape, True)):
        tensor = laid_out(tensor, suggests_channels_last(tensor))
    aligned = tensor.data_ptr() % (4 * tensor.element_size()) == 0
    return tensor if aligned else tensor.clone(memory_format=torch.preserve_format)


def hip_reasons(problem: ConvProblem, algorithm: Algorithm) -> list[str]:
    """Return the reasons every algorithm of the engine shares."""
    shapes = (problem.input_shape, problem.output_shape)
    # A tile's offsets are from its first sample: with small images it has several of them.
    sample = any(math.prod(shape[1:]) * (2 + 512 // max(1, math.prod(shape[2:]))) >= LARGEST for shape in shapes)
    batch = any(shape[0] * math.prod(shape[2:]) + 512 >= LARGEST for shape in shapes)
    launch = problem.groups >= 2**16 or math.prod(problem.stride) >= 2**16
    limits = (
        (sample, "a sample is too large for offsets of 32 bits"),
        (batch, "the pixels of the batch are 2**31 or more"),
        (launch, f"{problem.groups} groups are more than a launch takes"),
    )
    return launched_reasons(problem, algorithm, limits, device_reason)


def _shapes(problem: ConvProblem) -> tuple[tuple[int, ...], ...]:
    return problem.input_shape, problem.output_shape, problem.weight_shape
