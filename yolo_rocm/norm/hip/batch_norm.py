"""BatchNorm with its activation by kernels in C++: forward reads the input twice, backward input and gradient twice."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from ...engines.bounded import Bounded
from ...engines.device_state import STATE
from ...engines.devices import processors
from ...engines.hip.available import device_reason
from ...engines.hip.program import Launch, Program, bits_of
from ...engines.names import Pass
from ..base import LaunchedNorm, NormBound, NormGrads, Parameters, Statistics, Wanted, count_write
from ..problem import ACTIVATIONS, NormProblem
from ..pytorch import running

_STORAGE: Final = {torch.float32: "float", torch.float16: "half_t", torch.bfloat16: "bf16_t"}
_THREADS: Final = 256
_BLOCKS: Final = 8  # for each multiprocessor, of the parts of all channels together
_MOST_PARTS: Final = 1024
_COMBINED: Final = 8  # channels of a block that combines parts
Grid = tuple[int, int, int]
_launches: dict[tuple[Any, ...], Launch] = STATE.container(Bounded())


@lru_cache(maxsize=256)
def program_of(defines: tuple[tuple[str, int | str], ...]) -> Program:
    """Return the kernels with their constants."""
    text = files(__package__).joinpath("batch_norm.hip.cpp").read_text(encoding="utf-8")
    return Program(text, "batch_norm", dict(defines))


def defines_of(problem: NormProblem) -> tuple[tuple[str, int | str], ...]:
    """Return the constants of a problem."""
    along = problem.channels if problem.channels_last else problem.pixels
    return (
        ("T", _STORAGE[problem.dtype]),
        ("LAST", int(problem.channels_last)),
        ("V", 1 if along % 4 else 4),
        ("ACT", ACTIVATIONS.index(problem.activation)),
        ("SLOPE", f"{problem.slope:.9e}f"),
        ("AFFINE", int(problem.affine)),
        ("TRAINING", int(problem.training)),
    )


def launch_of(problem: NormProblem, kernel: str, grid: Grid, tensors: int, *numbers: float | None) -> Launch:
    """Return a launch that waits for addresses and for each None, compiled on first sight."""
    key = (problem, kernel, tensors, numbers)
    found = _launches.get(key)
    if found is None:
        loaded = program_of(defines_of(problem)).kernel(kernel, problem.device)
        # Units of what is computed value by value are unsigned in the kernels.
        given = [ctypes.c_uint32(n) if isinstance(n, int) and n >= 2**31 else n for n in numbers]
        found = _launches[key] = loaded.bound(grid, _THREADS, *(None,) * tensors, *given)
    return found


class HipNorm(LaunchedNorm):
    """Sums go through partial results in a fixed order: no atomics."""

    name: ClassVar[str] = "hip_norm"
    engine: ClassVar[str] = "hip"
    kernel: ClassVar[str | None] = "hip_batch_norm"

    def not_supported_reasons(self, problem: NormProblem) -> list[str]:
        """Support fp32, fp16 and bf16; the values of a channel are counted with a sign, all of them without."""
        is_too_large = problem.rows >= 2**31 or problem.rows * problem.channels >= 2**32 - _THREADS
        return self.reasons(problem, is_too_large, device_reason(problem.device))

    def workspace_bytes(self, problem: NormProblem) -> int:
        """Partial results, and the means that the gradient of the input is computed from."""
        return 4 * (4 * HipPasses(problem).parts + 2) * problem.channels

    def prepare(self, problem: NormProblem, which: Pass) -> None:
        """Compile the kernels, which are all of one program."""
        program_of(defines_of(problem)).prepare(problem.device)

    def bound(self, problem: NormProblem) -> NormBound:
        """Return the passes; how channels are cut is found out once."""
        own = HipPasses(problem)
        return NormBound(own.forward, own.activate, own.backward)


class HipPasses:
    """Forward, activation and backward of one problem.

    Args:
        problem: The problem.

    Attributes:
        parts: Of a channel.
    """

    def __init__(self, problem: NormProblem) -> None:
        self._problem = problem
        width, last = int(dict(defines_of(problem))["V"]), problem.channels_last
        blocks = -(-problem.channels // 32) if last else problem.channels
        lanes = _THREADS * width // 32 if last else _THREADS
        units = problem.rows if last else problem.rows // width
        most = min(-(-_BLOCKS * processors(problem.device) // blocks), units // (4 * lanes), _MOST_PARTS)
        part_units = -(-units // max(1, most))
        self.parts = -(-units // part_units)
        self._by_parts: Grid = (blocks, self.parts, 1)
        self._by_channels: Grid = (-(-problem.channels // _COMBINED), 1, 1)
        self._cut = (units, part_units, self.parts, problem.channels, problem.pixels)
        self._units = math.prod(problem.shape) // width

    def forward(self, x: Tensor, p: Parameters) -> tuple[Tensor, Statistics]:
        """Return the activation and the statistics; update the running ones in training."""
        problem, channels = self._problem, self._problem.channels
        if not problem.training:
            statistics = running(problem, p)
            return self.activate(x, p, statistics), statistics
        x = _aligned(x)
        partials = x.new_empty(4 * self.parts * channels, dtype=torch.float32)
        self._launch("partial_statistics", self._by_parts, (x, partials), *self._cut)
        mean, invstd = partials.new_empty(channels), partials.new_empty(channels)
        tracked = [None if each is None else each.float() for each in (p.running_mean, p.running_var)]
        tensors = (partials, *tracked, p.batches, mean, invstd)
        # The momentum of a cumulative average is another one for each batch.
        momentum, numbers = bits_of(float(p.momentum)), (self.parts, channels, None, float(p.eps))
        self._launch("combine_statistics", self._by_channels, tensors, *numbers, late=(momentum,))
        for own, new in zip((p.running_mean, p.running_var), tracked, strict=True):
            if own is not None and new is not None and own is not new:
                own.copy_(new)
        if p.batches is not None:
            count_write(p.batches)
        statistics = Statistics(mean, invstd)
        return self.activate(x, p, statistics), statistics

    def activate(self, x: Tensor, p: Parameters, statistics: Statistics) -> Tensor:
        """Return the activation, from the input and its statistics."""
        x = _aligned(x)
        y = torch.empty_like(x)
        self._by_values("activate", (x, *statistics, *_affine(p, statistics), y))
        return y

    def backward(self, grad: Tensor, x: Tensor, p: Parameters, statistics: Statistics, wanted: Wanted) -> NormGrads:
        """Return the gradients."""
        problem = self._problem
        weight, bias = _affine(p, statistics)
        read = (_aligned(grad), _aligned(x), *statistics, weight, bias)
        grad_weight = torch.empty_like(weight) if wanted[1] and problem.affine else None
        grad_bias = torch.empty_like(bias) if wanted[2] and problem.affine else None
        means = statistics.mean.new_empty(2 * problem.channels)
        if grad_weight is not None or grad_bias is not None or (wanted[0] and problem.training):
            partials = means.new_empty(2 * self.parts * problem.channels)
            self._launch("partial_gradients", self._by_parts, (*read, partials), *self._cut)
            results = (partials, statistics.invstd, grad_weight, grad_bias, means)
            numbers = (self.parts, problem.channels, float(problem.rows))
            self._launch("combine_gradients", self._by_channels, results, *numbers)
        grad_x = None
        if wanted[0]:
            grad_x = torch.empty_like(read[1])
            self._by_values("input_gradient", (*read, means, grad_x))
        if grad_weight is not None and p.weight is not None:
            grad_weight = grad_weight.to(p.weight.dtype)
        if grad_bias is not None and p.bias is not None:
            grad_bias = grad_bias.to(p.bias.dtype)
        return NormGrads(grad_x, grad_weight, grad_bias)

    def _by_values(self, kernel: str, tensors: Sequence[Tensor]) -> None:
        grid = (-(-self._units // _THREADS), 1, 1)
        self._launch(kernel, grid, tensors, self._units, self._problem.channels, self._problem.pixels)

    def _launch(
        self,
        kernel: str,
        grid: Grid,
        tensors: Sequence[Tensor | None],
        *numbers: float | None,
        late: tuple[int, ...] = (),
    ) -> None:
        launch = launch_of(self._problem, kernel, grid, len(tensors), *numbers)
        launch(*(0 if each is None else each.data_ptr() for each in tensors), *late)


def _affine(p: Parameters, statistics: Statistics) -> tuple[Tensor, Tensor]:
    """Return weight and bias in fp32, or anything where there are none."""
    mean = statistics.mean
    weight, bias = (mean if each is None else each.detach().float().contiguous() for each in (p.weight, p.bias))
    return weight, bias


def _aligned(x: Tensor) -> Tensor:
    return x if x.data_ptr() % (4 * x.element_size()) == 0 else x.clone(memory_format=torch.preserve_format)
