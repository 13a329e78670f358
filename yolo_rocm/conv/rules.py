"""Which algorithm to take before anything has been measured on this device.

Derived from `bench conv` on an NVIDIA H200 (torch 2.11, batch 64, yolov8n, yolo11n and yolo26n, NCHW) and, for CPUs, on
aarch64 (torch 2.10). A name that does not serve a problem is skipped, so every list ends in one that serves everything.
"""

from __future__ import annotations

import math
from typing import Final

import torch

from .problem import ConvProblem

ANYTHING: Final = ("unfold", "windows")


def preferred(problem: ConvProblem, which: str) -> tuple[str, ...]:
    """Return names of algorithms for one pass of `problem`, best guess first."""
    if problem.transposed:
        return ("transposed_shuffle", "transposed")
    if math.prod(problem.kernel) == 1 and problem.groups == 1 and not any(problem.padding):
        return ("pointwise", *ANYTHING)
    on_cpu = problem.device.startswith("cpu")
    if problem.groups > 1:
        depthwise = ("depthwise_shift",) if on_cpu else ("depthwise_kernel", "depthwise_bands", "depthwise_shift")
        return (*depthwise, *(("windows", "unfold") if which == "grad_weight" else ANYTHING))
    if on_cpu:
        return ("columns", *ANYTHING)
    small_map = len(problem.output_size) == 2 and math.prod(problem.output_size) < 40 * 40
    if problem.dtype in (torch.float16, torch.bfloat16):
        if small_map:
            return ("windows" if which == "grad_weight" else "columns", *ANYTHING)
        return ("shift_rows", "planes", *ANYTHING)
    if which != "grad_weight":
        return ("planes", *ANYTHING)
    if max(problem.in_channels, problem.out_channels) <= 32:
        return ("columns", *ANYTHING)
    return ("windows" if small_map else "shift_rows", "planes", *ANYTHING)
