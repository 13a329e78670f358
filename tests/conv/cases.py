"""Convolutions as data: the shapes that every algorithm is tried on, and which of them the kernels meet by default."""

from __future__ import annotations

from dataclasses import replace

import torch

from tools.exactness import in_doubles, native_passes
from yolo_rocm.conv.plan import Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.engines.activations import SILU, activate_in_place
from yolo_rocm.engines.names import Pass

Pair = tuple[int, int]
ONE, NONE = (1, 1), (0, 0)


def conv(
    shape: tuple[int, ...],
    out_channels: int,
    kernel: Pair,
    stride: Pair = ONE,
    padding: Pair = NONE,
    dilation: Pair = ONE,
    groups: int = 1,
    transposed: bool = False,
    spare: Pair = NONE,
    device: str = "cpu",
) -> ConvProblem:
    """Return a convolution in fp32 and NCHW."""
    weight = (shape[1], out_channels // groups) if transposed else (out_channels, shape[1] // groups)
    geometry = (stride, padding, dilation, spare, groups, transposed)
    made = ConvProblem(shape, (*weight, *kernel), *geometry, torch.float32, device, False)
    assert not made.problems()
    return made


def activated(case: ConvProblem, activation: str = SILU, slope: float = 0.0, bias: bool = True) -> ConvProblem:
    """Return a convolution of a network that only computes, with what follows it."""
    return replace(case, activation=activation, slope=slope, bias=bias)


def exact(problem: ConvProblem, which: str, operands: Operands) -> torch.Tensor:
    """Return the right result of a pass, in fp64."""
    wide = in_doubles(operands)
    result = native_passes(problem, wide)[which]
    if which != Pass.FORWARD:
        return result
    if problem.bias:
        result = result + wide.grad[0].flatten(1)[:, 0].view(-1, *[1] * len(problem.kernel))
    return activate_in_place(result, problem.activation, problem.slope)


# A name says what is odd about a case. Sizes are multiples of nothing, but for those that say so.
PLAIN = {
    "image": conv((2, 3, 9, 7), 16, (3, 3), (2, 2), ONE),
    "3x3": conv((2, 20, 5, 7), 20, (3, 3), ONE, ONE),
    "1x1": conv((1, 20, 4, 3), 36, ONE),
    "1x1, stride 2": conv((2, 20, 5, 4), 5, ONE, (2, 2)),
    "whole vectors": conv((2, 16, 6, 8), 20, (3, 3), (2, 2), ONE),
    "whole vectors of pixels, 1x1": conv((2, 12, 6, 6), 20, ONE),
    "eighty channels": conv((1, 80, 2, 4), 20, (1, 3), ONE, (0, 1)),
    "to eighty channels": conv((1, 20, 3, 4), 80, (3, 3), ONE, ONE),
    "image to eighty channels": conv((1, 3, 4, 3), 80, (3, 3), ONE, ONE),
    "1x3": conv((1, 6, 5, 7), 9, (1, 3), ONE, (0, 1)),
    "7x2": conv((1, 5, 9, 6), 4, (7, 2), (2, 1), (3, 1)),
    "2x2, stride 2": conv((2, 8, 6, 8), 20, (2, 2), (2, 2)),
    "stride larger than the kernel": conv((1, 4, 9, 8), 6, (1, 2), (3, 3)),
    "unequal strides": conv((1, 20, 8, 9), 5, (3, 3), (1, 3), (1, 0)),
    "stride 3": conv((2, 4, 10, 8), 6, (3, 5), (3, 3), (1, 2)),
    "dilated": conv((1, 6, 9, 8), 5, (3, 3), ONE, (2, 3), (2, 3)),
    "stride and dilation alike": conv((1, 5, 11, 10), 4, (3, 3), (2, 3), (2, 1), (2, 3)),
    "stride and dilation share a factor": conv((1, 4, 13, 15), 4, (3, 3), (4, 4), (3, 5), (2, 6)),
    "more padding than kernel": conv((1, 4, 3, 4), 6, (2, 2), (1, 2), (4, 3)),
    "groups": conv((2, 8, 5, 6), 12, (3, 3), ONE, ONE, groups=4),
    "groups, uneven phases": conv((2, 8, 9, 9), 8, (3, 3), (3, 2), (1, 2), (2, 3), groups=2),
    "one pixel": conv((3, 8, 1, 1), 16, (3, 3), ONE, ONE),
    "a row of pixels": conv((1, 5, 1, 9), 3, (1, 3), (1, 2), (0, 2)),
}
DEPTHWISE = {
    "depthwise": conv((2, 12, 6, 5), 12, (3, 3), ONE, ONE, groups=12),
    "depthwise, more than a block": conv((1, 66, 3, 5), 66, (3, 3), ONE, ONE, groups=66),
    "depthwise, stride 2, 5x4": conv((1, 5, 9, 7), 5, (5, 4), (2, 2), (2, 2), groups=5),
    "depthwise, whole vectors": conv((2, 36, 9, 7), 36, (5, 3), (2, 2), (2, 1), (1, 2), groups=36),
    "depthwise, two for each": conv((1, 6, 5, 6), 12, (3, 3), (2, 1), ONE, groups=6),
    "depthwise, dilated by its stride": conv((1, 4, 9, 8), 4, (3, 3), (2, 2), (2, 1), (2, 4), groups=4),
    "depthwise, 7x7": conv((1, 4, 8, 9), 4, (7, 7), ONE, (3, 3), groups=4),
    "depthwise, more padding than kernel": conv((1, 6, 5, 4), 6, (3, 3), ONE, (4, 3), groups=6),
    "depthwise, one pixel": conv((2, 9, 1, 1), 9, (3, 3), ONE, ONE, groups=9),
}
TRANSPOSED = {
    "upsampling": conv((2, 8, 3, 4), 6, (2, 2), (2, 2), transposed=True),
    "groups and spare rows": conv((1, 6, 4, 3), 4, (3, 3), (2, 2), ONE, ONE, 2, True, ONE),
    "spare rows beyond the stride": conv((1, 3, 4, 3), 5, (3, 3), ONE, (0, 1), (2, 2), 1, True, ONE),
}
# Winograd's own: 64 channels make up for what its transforms cost.
WIDE = {
    "winograd": conv((2, 64, 7, 5), 64, (3, 3), ONE, (0, 2)),
    "winograd, whole tiles": conv((1, 64, 8, 8), 72, (3, 3), ONE, ONE),
}
CASES = {**PLAIN, **DEPTHWISE, **TRANSPOSED, **WIDE}

# What an interpreted or emulated kernel meets by default; the other cases are deep.
BY_KERNEL = {
    "gemm": ("3x3", "1x1, stride 2", "stride and dilation share a factor", "groups", "more padding than kernel"),
    "rows": ("3x3", "1x3", "groups", "a row of pixels", "unequal strides"),
    "flat": ("image", "image to eighty channels", "stride 3", "dilated", "depthwise, two for each"),
    "transpose": ("3x3", "to eighty channels", "image", "1x1", "7x2"),
    "depthwise": (
        "depthwise", "depthwise, stride 2, 5x4", "depthwise, two for each", "depthwise, dilated by its stride",
        "depthwise, more than a block",
    ),
    "transposed": tuple(TRANSPOSED),
    "hip_gemm": (
        "whole vectors", "whole vectors of pixels, 1x1", "1x1, stride 2", "groups, uneven phases", "image",
    ),
    "hip_few": ("image", "image to eighty channels", "stride 3", "7x2", "more padding than kernel"),
    "hip_direct": (
        "depthwise", "depthwise, whole vectors", "depthwise, dilated by its stride", "depthwise, 7x7",
        "depthwise, more than a block",
    ),
    "hip_winograd_kernel": ("winograd", "winograd, whole tiles", "3x3"),
    "hip_transposed": ("upsampling", "groups and spare rows"),
}  # fmt: skip
