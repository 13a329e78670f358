"""Which algorithm to take before anything has been measured on this device.

Derived from `bench conv` on an NVIDIA H200 (torch 2.11, batch 64, yolov8n, yolo11n and yolo26n, NCHW) and, for CPUs, on
aarch64 (torch 2.10). Algorithms that do not support a problem are skipped; every list ends in one that supports all.
"""

from __future__ import annotations

import math
from typing import Final

import torch

from ..engines.names import Pass
from .problem import ConvProblem

ANYTHING: Final = "windows"  # supports all that is not transposed


def preferred(problem: ConvProblem, which: Pass, triton: bool = False) -> tuple[str, ...]:
    """Return names of algorithms for one pass of `problem`, best guess first.

    Args:
        problem: The problem.
        which: The pass.
        triton: Whether Triton's are the only ones. Otherwise they are left to the tuner, which sees whether they are
            faster than `gemm` on this device.
    """
    if triton:
        return _triton(problem, which)
    if problem.transposed:
        return ("transposed_shuffle", "transposed")
    if math.prod(problem.kernel) == 1 and problem.groups == 1 and not any(problem.padding):
        return ("pointwise", ANYTHING)
    on_cpu = problem.device.startswith("cpu")
    if problem.groups > 1:
        return ("depthwise_kernel", ANYTHING)
    if on_cpu:
        return ("columns", ANYTHING)
    small_map = len(problem.output_size) == 2 and math.prod(problem.output_size) < 40 * 40
    if problem.dtype in (torch.float16, torch.bfloat16):
        if small_map:
            return (ANYTHING,) if which == Pass.GRAD_WEIGHT else ("columns", ANYTHING)
        return ("shift_rows", "planes", ANYTHING)
    if which != "grad_weight":
        return ("planes", ANYTHING)
    if max(problem.in_channels, problem.out_channels) <= 32:
        return ("columns", ANYTHING)
    return (ANYTHING if small_map else "shift_rows", "planes", ANYTHING)


def _triton(problem: ConvProblem, which: Pass) -> tuple[str, ...]:
    channels = (problem.in_channels if which == Pass.GRAD_INPUT else problem.out_channels) // problem.groups
    size = next((size for size, most in (("s", 24), ("m", 48), ("l", 96)) if channels <= most), "xl")
    layout = "" if problem.channels_last else "_turned"  # through a channels_last copy, as plan files name it
    first = ["triton_transposed", "triton_depthwise"]
    if which == "forward":
        first.append("triton_flat")
    if which == "grad_weight":
        return (*first, f"triton_rows_{size}{layout}", f"triton_{size}{layout}", f"triton_{size}")
    if problem.dtype != torch.float32:
        first.append(f"triton_{size}{layout}")
    return (*first, f"triton_{size}")
