"""BatchNorm with its activation by kernels in C++: forward reads the input twice, backward input and gradient twice."""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from importlib.resources import files
from typing import Any, ClassVar, Final

import torch

from ...engines.bounded import Bounded
from ...engines.device_state import STATE
from ...engines.devices import processors
from ...engines.hip.available import device_reason
from ...engines.hip.program import Launch, Program, bits_of
from ...engines.names import Pass
from ...engines.trust.record import quarantine_reasons
from ..base import NormAlgorithm, NormGrads, Parameters, Statistics, count_write
from ..problem import ACTIVATIONS, NormProblem

_STORAGE: Final = {torch.float32: "float", torch.float16: "half_t", torch.bfloat16: "bf16_t"}
_THREADS: Final = 256
_BLOCKS: Final = 8  # for each multiprocessor, of the parts of all channels together
_MOST_PARTS: Final = 1024
# How many tensors a kernel takes, which come before its numbers.
TENSORS: Final = {
    "partial_statistics": 2,
    "combine_statistics": 6,
    "activate": 6,
    "partial_gradients": 7,
    "combine_gradients": 5,
    "input_gradient": 8,
}
_launches: dict[tuple[NormProblem, str, tuple[Any, ...]], Launch] = STATE.container(Bounded())


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


def launch_of(problem: NormProblem, kernel: str, grid: tuple[int, int, int], *numbers: int | float | None) -> Launch:
    """Return a launch that waits for addresses and for each None, compiled on first sight."""
    key = (problem, kernel, numbers)
    found = _launches.get(key)
    if found is None:
        loaded = program_of(defines_of(problem)).kernel(kernel, problem.device)
        # Units of what is computed value by value are unsigned in the kernels.
        given = [ctypes.c_uint32(n) if isinstance(n, int) and n >= 2**31 else n for n in numbers]
        found = _launches[key] = loaded.bound(grid, _THREADS, *(None,) * TENSORS[kernel], *given)
    return found


class HipNorm(NormAlgorithm):
    """Sums go through partial results in a fixed order: no atomics."""

    name: ClassVar[str] = "hip_norm"
    engine: ClassVar[str] = "hip"
    kernel: ClassVar[str | None] = "hip_batch_norm"

    def not_supported_reasons(self, problem: NormProblem) -> list[str]:
        """Support fp32, fp16 and bf16."""
        reasons = []
        if problem.dtype not in _STORAGE:
            reasons.append(f"dtype {problem.dtype} is not float32, float16 or bfloat16")
        if problem.rows * problem.channels == 0:
            reasons.append("there are no values")
        if problem.rows >= 2**31 or problem.rows * problem.channels >= 2**32 - _THREADS:
            reasons.append("there are 2**31 values of a channel, or 2**32 of all, or more")
        missing = device_reason(problem.device)
        if missing:
            return [*reasons, missing]
        return reasons + quarantine_reasons("norm", self, problem)

    def workspace_bytes(self, problem: NormProblem) -> int:
        """Partial results, and the means that the gradient of the input is computed from."""
        return 4 * (4 * _cut(problem)[3] + 2) * problem.channels

    def prepare(self, problem: NormProblem, which: Pass) -> None:
        """Compile the kernels, which are all of one program."""
        program_of(defines_of(problem)).prepare(problem.device)

    def forward(self, problem: NormProblem, x: torch.Tensor, p: Parameters) -> tuple[torch.Tensor, Statistics]:
        """Return the activation and the statistics; update the running ones in training."""
        if not problem.training:
            assert p.running_mean is not None
            assert p.running_var is not None
            statistics = Statistics(p.running_mean.float().clone(), (p.running_var.float() + p.eps).rsqrt())
            return self.activate(problem, x, p, statistics), statistics
        x = _aligned(x)
        blocks, units, part_units, parts = _cut(problem)
        partials = x.new_empty(4 * parts * problem.channels, dtype=torch.float32)
        sizes = (parts, problem.channels)
        cut = (units, part_units, *sizes, problem.pixels)
        launch_of(problem, "partial_statistics", (blocks, parts, 1), *cut)(x.data_ptr(), partials.data_ptr())
        mean, invstd = partials.new_empty(problem.channels), partials.new_empty(problem.channels)
        running = [None if each is None else each.float() for each in (p.running_mean, p.running_var)]
        combine = launch_of(
            problem, "combine_statistics", (-(-problem.channels // 8), 1, 1), *sizes, None, float(p.eps)
        )
        # That of a cumulative average is another one for each batch.
        momentum = bits_of(float(p.momentum))
        combine(*(_at(each) for each in (partials, *running, p.batches, mean, invstd)), momentum)
        for own, new in zip((p.running_mean, p.running_var), running, strict=True):
            if own is not None and new is not None and own.dtype != torch.float32:
                own.copy_(new)
        if p.batches is not None:
            count_write(p.batches)
        statistics = Statistics(mean, invstd)
        return self.activate(problem, x, p, statistics), statistics

    def activate(self, problem: NormProblem, x: torch.Tensor, p: Parameters, statistics: Statistics) -> torch.Tensor:
        """Return the activation, from the input and its statistics."""
        x = _aligned(x)
        weight, bias = _affine(p, statistics)
        y = torch.empty_like(x)
        tensors = (x, *statistics, weight, bias, y)
        _elementwise(problem, "activate")(*(each.data_ptr() for each in tensors))
        return y

    def backward(
        self,
        problem: NormProblem,
        grad: torch.Tensor,
        x: torch.Tensor,
        p: Parameters,
        statistics: Statistics,
        wanted: tuple[bool, bool, bool],
    ) -> NormGrads:
        """Return the gradients."""
        x, grad = _aligned(x), _aligned(grad)
        weight, bias = _affine(p, statistics)
        read = [each.data_ptr() for each in (grad, x, *statistics, weight, bias)]
        grad_weight = torch.empty_like(weight) if wanted[1] and problem.affine else None
        grad_bias = torch.empty_like(bias) if wanted[2] and problem.affine else None
        blocks, units, part_units, parts = _cut(problem)
        means = statistics.mean.new_empty(2 * problem.channels)
        if grad_weight is not None or grad_bias is not None or (wanted[0] and problem.training):
            partials = means.new_empty(2 * parts * problem.channels)
            cut = (units, part_units, parts, problem.channels, problem.pixels)
            launch_of(problem, "partial_gradients", (blocks, parts, 1), *cut)(*read, partials.data_ptr())
            grid, numbers = (-(-problem.channels // 8), 1, 1), (parts, problem.channels, float(problem.rows))
            results = (partials, statistics.invstd, grad_weight, grad_bias, means)
            launch_of(problem, "combine_gradients", grid, *numbers)(*(_at(each) for each in results))
        grad_x = None
        if wanted[0]:
            grad_x = torch.empty_like(x)
            _elementwise(problem, "input_gradient")(*read, means.data_ptr(), grad_x.data_ptr())
        if grad_weight is not None and p.weight is not None:
            grad_weight = grad_weight.to(p.weight.dtype)
        if grad_bias is not None and p.bias is not None:
            grad_bias = grad_bias.to(p.bias.dtype)
        return NormGrads(grad_x, grad_weight, grad_bias)


def _elementwise(problem: NormProblem, kernel: str) -> Launch:
    units = math.prod(problem.shape) // int(dict(defines_of(problem))["V"])
    return launch_of(problem, kernel, (-(-units // _THREADS), 1, 1), units, problem.channels, problem.pixels)


def _cut(problem: NormProblem) -> tuple[int, int, int, int]:
    """Return blocks along channels, units of a channel, units of a part, and parts."""
    width = int(dict(defines_of(problem))["V"])
    last = problem.channels_last
    blocks = -(-problem.channels // 32) if last else problem.channels
    lanes = _THREADS * width // 32 if last else _THREADS
    units = problem.rows if last else problem.rows // width
    parts = max(1, min(-(-_BLOCKS * processors(problem.device) // blocks), units // (4 * lanes), _MOST_PARTS))
    part_units = -(-units // parts)
    return blocks, units, part_units, -(-units // part_units)


def _affine(p: Parameters, statistics: Statistics) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weight and bias in fp32, or anything where there are none."""
    mean = statistics.mean
    weight, bias = (mean if each is None else each.detach().float().contiguous() for each in (p.weight, p.bias))
    return weight, bias


def _aligned(x: torch.Tensor) -> torch.Tensor:
    return x if x.data_ptr() % (4 * x.element_size()) == 0 else x.clone(memory_format=torch.preserve_format)


def _at(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
