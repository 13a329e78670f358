"""What all Triton algorithms share: why they do not support a problem, how they multiply, the memory they write to."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Final

import torch

from ...engines.bounded import Bounded
from ...engines.device_state import STATE
from ...engines.precision import tf32_allowed
from ...engines.triton.available import FMA, NVIDIA, device_reason, family
from ...engines.triton.call import Call
from ..base import Algorithm, common_reasons, quarantined
from ..problem import ConvProblem
from .calls import Dot, strides

_LARGEST: Final = 2**31
_splits: dict[Hashable, tuple[Call, int]] = STATE.container(Bounded())


def triton_reasons(problem: ConvProblem, algorithm: Algorithm) -> list[str]:
    """Return the reasons every Triton algorithm shares; those of the device, a kernel or a tile on it, come last."""
    reasons = common_reasons(problem, dimensions=2, groups=True)
    if reasons:
        return reasons
    if problem.dtype not in (torch.float32, torch.float16, torch.bfloat16) and problem.dtype.is_floating_point:
        reasons.append(f"dtype {problem.dtype} is not float32, float16 or bfloat16")
    shapes = (problem.input_shape, problem.output_shape)
    if any(math.prod(shape[1:]) >= _LARGEST or shape[0] * math.prod(shape[2:]) >= _LARGEST for shape in shapes):
        reasons.append("a sample, or the pixels of the batch, are 2**31 or more")
    if problem.groups >= 2**16 // math.prod(problem.stride):
        reasons.append(f"{problem.groups} groups are more than a launch takes")
    missing = device_reason(problem.device)
    return [*reasons, missing] if missing else reasons + quarantined(algorithm, problem)


def dot(problem: ConvProblem) -> Dot:
    """Return how products are computed on the problem's device: in IEEE fp32 unless TF32 is allowed for GEMMs."""
    return Dot(upcast=family(problem.device) == FMA, precision="tf32" if tf32(problem) else "ieee")


def tf32(problem: ConvProblem) -> bool:
    """Return whether products of a problem are to be computed in TF32, which NVIDIA's GPUs have and the user allows."""
    return problem.dtype == torch.float32 and family(problem.device) == NVIDIA and tf32_allowed()


def sum_key(problem: ConvProblem, splits: int, dtype: torch.dtype) -> Hashable:
    """Return all that the launch of a sum of partial sums is made from."""
    weight = (problem.weight_shape, problem.groups, problem.device, problem.channels_last, problem.dtype)
    return ("sum_partials", *weight, dtype, splits)


def splits_of(key: Hashable) -> int:
    """Return how many splits the gradient of a weight was computed in, where it was."""
    return _splits[key][1]


def remembered(key: Hashable, make: Callable[[], tuple[Call, int]]) -> tuple[Call, int]:
    """Return a call with its number of splits, made on first sight."""
    found = _splits.get(key)
    if found is None:
        found = _splits[key] = make()
    return found


def empty_for(
    problem: ConvProblem, shape: tuple[int, ...], like: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return new memory in the layout the native kernel would return, in the problem's data type or another one."""
    return like.new_empty_strided(shape, strides(shape, problem.channels_last), dtype=dtype or problem.dtype)
