"""What all Triton algorithms share: why they do not support a problem, and how they multiply."""

from __future__ import annotations

import math

import torch

from ...engines.precision import tf32_allowed
from ...engines.triton.available import FMA, NVIDIA, device_reason, family
from ..base import Algorithm
from ..launched import LARGEST, launched_reasons
from ..problem import ConvProblem
from .calls import Dot


def triton_reasons(problem: ConvProblem, algorithm: Algorithm) -> list[str]:
    """Return the reasons every Triton algorithm shares."""
    shapes = (problem.input_shape, problem.output_shape)
    large = any(math.prod(shape[1:]) >= LARGEST or shape[0] * math.prod(shape[2:]) >= LARGEST for shape in shapes)
    limits = (
        (large, "a sample, or the pixels of the batch, are 2**31 or more"),
        (problem.groups >= 2**16 // math.prod(problem.stride), f"{problem.groups} groups are more than a launch takes"),
    )
    return launched_reasons(problem, algorithm, limits, device_reason)


def dot(problem: ConvProblem) -> Dot:
    """Return how products are computed on the problem's device: in IEEE fp32 unless TF32 is allowed for GEMMs."""
    return Dot(upcast=family(problem.device) == FMA, precision="tf32" if tf32(problem) else "ieee")


def tf32(problem: ConvProblem) -> bool:
    """Return whether products of a problem are to be computed in TF32, which NVIDIA's GPUs have and the user allows."""
    return problem.dtype == torch.float32 and family(problem.device) == NVIDIA and tf32_allowed()
