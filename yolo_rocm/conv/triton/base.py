"""A Triton algorithm: one launch for each pass; that of grad-weight writes partial sums, and a second one adds them.

On a fast GPU many layers in half precision take less time than Python needs for them: once its launches are made, what
is left of a pass is memory and a launch.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch

from ...engines.names import Pass
from ...engines.triton.call import Call
from ...engines.triton.launch import Launch, prepare
from ..launched import LaunchedAlgorithm, LaunchedPass, Passes, Sides, Strides
from ..problem import ConvProblem
from . import calls
from .calls import strides
from .common import tf32


class TritonAlgorithm(LaunchedAlgorithm):
    """The three passes, from the launches and the layout of the weight that a subclass describes."""

    engine: ClassVar[str] = "triton"
    packs: ClassVar[bool] = False  # whether weights are copied

    @abstractmethod
    def gather_call(
        self, problem: ConvProblem, back: bool, src: Strides, weight: Strides, out: Strides, bias: bool
    ) -> Call:
        """Describe forward, or with `back` grad-input; tensors: source, packed weight, bias or anything, result."""

    @abstractmethod
    def grad_weight_call(self, problem: ConvProblem, grad: Strides, x: Strides) -> tuple[Call, int]:
        """Describe the launch of grad-weight and its number of splits; tensors: input, gradient, partial sums."""

    def packed_strides(self, problem: ConvProblem, back: bool, weight: Strides) -> Strides:
        """Return the strides that a pass reads a weight with; one that has others is copied."""
        return weight

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """A packed weight, or the partial sums of the gradient of the weight."""
        # A gradient may come in the other layout, in which steps, and with them splits, may be other ones.
        shapes = (problem.output_shape, problem.input_shape)
        layouts = ([strides(shape, last) for shape in shapes] for last in (False, True))
        splits = max(self.grad_weight_call(problem, *by)[1] for by in layouts)
        return (splits + self.packs) * math.prod(problem.weight_shape) * 4

    def made_passes(self, problem: ConvProblem) -> Passes:
        """Make the passes for a problem."""
        return Passes(_Gather(self, problem, False), _Gather(self, problem, True), _GradWeight(self, problem))

    def prepare(self, problem: ConvProblem, which: Pass) -> None:
        """Compile what a pass launches."""
        self.prepare_reading(problem, which, problem.channels_last)

    def prepare_reading(self, problem: ConvProblem, which: Pass, channels_last: bool) -> None:
        """Compile what a pass launches, where the operands are channels_last or not, whatever the result is."""
        dtypes: tuple[torch.dtype, ...] = (problem.dtype,) * 4
        if which == Pass.GRAD_WEIGHT:
            x, y = strides(problem.input_shape, channels_last), strides(problem.output_shape, channels_last)
            call, _ = self.grad_weight_call(problem, y, x)
            dtypes = (problem.dtype, problem.dtype, torch.float32)
        else:
            back = which == Pass.GRAD_INPUT
            sides = Sides.of(problem, back)
            weight = self.packed_strides(problem, back, strides(problem.weight_shape, problem.channels_last))
            src, out = strides(sides.src, channels_last), strides(sides.out, problem.channels_last)
            call = self.gather_call(problem, back, src, weight, out, problem.bias and not back)
        prepare(call, dtypes, problem.device)


class _GatherLaunch(NamedTuple):
    """A launch of forward or grad-input, and the strides that the weight is copied to; None where it is read as is."""

    launch: Launch
    packed: Strides | None


class _Gather(LaunchedPass[_GatherLaunch]):
    """Forward or grad-input of a problem: one launch that reads a source and a weight, and a bias or anything."""

    def __init__(self, algorithm: TritonAlgorithm, problem: ConvProblem, back: bool) -> None:
        super().__init__(problem, Sides.of(problem, back).out)
        self._algorithm, self._back = algorithm, back

    def __call__(self, source: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Compute the pass."""
        launch, packed = self.launches(source.stride(), weight.stride(), bias is not None, tf32(self.problem))
        if packed is not None:
            weight = weight.new_empty_strided(weight.shape, packed).copy_(weight)
        result = source.new_empty_strided(self.shape, self.strides)
        launch(source, weight, source if bias is None else bias.contiguous(), result)
        return result

    def make(self, source: Strides, weight: Strides, *kind: bool) -> _GatherLaunch:
        """Describe the launch."""
        problem, back, algorithm = self.problem, self._back, self._algorithm
        packed = algorithm.packed_strides(problem, back, weight)
        call = algorithm.gather_call(problem, back, source, packed, self.strides, kind[0])
        launch = Launch((algorithm.name, problem, back, source, packed, *kind), call)
        return _GatherLaunch(launch, None if packed == weight else packed)


class _GradWeightLaunches(NamedTuple):
    """The launch that writes partial sums, the one that adds them, how many numbers they are, the result's type."""

    write: Launch
    add: Launch
    partials: int
    dtype: torch.dtype


class _GradWeight(LaunchedPass[_GradWeightLaunches]):
    """The gradient of a weight: a launch that writes partial sums, and one that adds them."""

    def __init__(self, algorithm: TritonAlgorithm, problem: ConvProblem) -> None:
        super().__init__(problem, problem.weight_shape)
        self._algorithm = algorithm

    def __call__(self, grad: torch.Tensor, x: torch.Tensor, wide: bool) -> torch.Tensor:
        """Compute the pass."""
        launches = self.launches(grad.stride(), x.stride(), wide, tf32(self.problem))
        partials = x.new_empty(launches.partials, dtype=torch.float32)
        result = x.new_empty_strided(self.shape, self.strides, dtype=launches.dtype)
        launches.write(x, grad, partials)
        launches.add(partials, result)
        return result

    def make(self, grad: Strides, x: Strides, *kind: bool) -> _GradWeightLaunches:
        """Describe both launches; that of the sum is the same for other algorithms and layers of this weight."""
        problem, (wide, in_tf32) = self.problem, kind
        call, splits = self._algorithm.grad_weight_call(problem, grad, x)
        write = Launch((self._algorithm.name, problem, grad, x, in_tf32), call)
        dtype = torch.float32 if wide else problem.dtype
        weight = (problem.weight_shape, problem.groups, problem.channels_last, problem.dtype, problem.device)
        total = calls.sum_partials(problem, splits, self.strides, dtype != problem.dtype)
        add = Launch(("sum_partials", weight, splits, dtype), total)
        return _GradWeightLaunches(write, add, splits * math.prod(self.shape), dtype)
