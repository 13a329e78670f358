"""A Triton kernel to compile or run for AMD GPUs that are not there, and the targets and data types of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch

from yolo_rocm.conv.launched import Strides
from yolo_rocm.engines.activations import IDENTITY
from yolo_rocm.engines.triton.call import Call

Group = tuple[int, int, int]  # a workgroup, by its place in the grid
TARGETS: Final = ("gfx1010", "gfx1030", "gfx1100", "gfx1151", "gfx1201", "gfx90a", "gfx942")
DTYPES: Final = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Kernel:
    """A call to compile: which kernel, for which tile, dtype and layout.

    Attributes:
        name: As in the table.
        tile: Likewise.
        dtype: Likewise.
        layout: Likewise.
        call: What is compiled.
        types: Of its tensors.
        problem: The layer that the call is for: a convolution, or a normalisation (`tools/norm_kernels.py`).
        weight: Strides of the layer's weight, for the kernels that read or write it.
        splits: Partial sums that are written, or added.
        bias: Whether one is added.
        activation: What is computed of the result, in the kernel's epilogue.
    """

    name: str
    tile: str
    dtype: str
    layout: str
    call: Call
    types: tuple[torch.dtype, ...]
    problem: Any
    weight: Strides = (0, 0, 0, 0)
    splits: int = 0
    bias: bool = False
    activation: str = IDENTITY
