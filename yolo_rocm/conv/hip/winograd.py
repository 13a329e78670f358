"""Winograd's F(2x2, 3x3) of engine hip, in one kernel: 4/9 of the multiplications of a plain sum."""

from __future__ import annotations

import math
from typing import ClassVar, Final

import torch

from ...engines.names import Pass
from ..launched import Sides, Strides
from ..problem import ConvProblem, cdiv
from .base import PassCalls, hip_reasons
from .calls import STORAGE, HipCall, activation
from .gemm import HipGemm
from .tiles import TILES

_DEPTH: Final = 8  # as in the source, as are the next two
_OUTPUTS: Final = 32
_TILES: Final = 32


class HipWinograd(HipGemm):
    """Forward and grad-input of 3 x 3 convolutions of stride 1; grad-weight is that of the plain tiles."""

    kernel: ClassVar[str | None] = "hip_winograd_kernel"
    exact: ClassVar[bool] = False

    def __init__(self) -> None:
        """Use plain tiles for grad-weight."""
        super().__init__("winograd", *TILES["128x64"])

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support 3 x 3, stride 1, fp32, without dilation and groups, padded by at most 2."""
        reasons = []
        if problem.kernel != (3, 3) or problem.stride != (1, 1) or max(problem.dilation) > 1:
            reasons.append(
                f"kernel {problem.kernel}, stride {problem.stride}, dilation {problem.dilation}: not a plain 3x3"
            )
        if problem.groups != 1:
            reasons.append(f"groups is {problem.groups}, not 1")
        if max(problem.padding) > 2:
            reasons.append(f"padding {problem.padding} is more than 2")
        if problem.dtype != torch.float32:
            reasons.append(f"dtype {problem.dtype} would round transformed weights")
        return reasons + hip_reasons(problem, self)

    def worth_measuring(self, problem: ConvProblem, which: Pass) -> bool:
        """Return whether it is forward or grad-input of a layer whose channels fill a step."""
        return which != Pass.GRAD_WEIGHT and min(problem.in_channels, problem.out_channels) >= 16

    def gather_steps(self, problem: ConvProblem, back: bool, src: Strides, weight: Strides, out: Strides) -> PassCalls:
        """Describe forward or grad-input, and the transform of the weight before it."""
        sides = Sides.of(problem, back)
        channels, outputs, out_size = sides.channels, sides.outputs, sides.out[2:]
        tiles_n = cdiv(outputs, _OUTPUTS)
        packed_channels, packed_outputs = cdiv(channels, _DEPTH) * _DEPTH, tiles_n * _OUTPUTS
        padding = tuple(2 - p for p in problem.padding) if back else problem.padding
        out_last = out[1] == 1
        pairs = not out_last and out[3] == 1 and all(by % 2 == 0 for by in (*out[:3], out_size[1]))
        defines: tuple[tuple[str, int | str], ...] = (
            ("T", STORAGE[problem.dtype]),
            ("SRC_LAST", int(src[1] == 1)),
            ("OUT_LAST", int(out_last)),
            ("VEC_OUT", int(pairs)),
            ("EVEN_K", int(channels % _DEPTH == 0)),
            *activation(problem).items(),
        )
        tiles = cdiv(problem.batch * math.prod(cdiv(size, 2) for size in out_size), _TILES)
        sizes = (problem.batch, *out_size, *sides.src[2:], channels, outputs)
        numbers = (*sizes, *src, *out, *padding, tiles_n, packed_channels)
        kernel = HipCall("winograd", defines, (tiles * tiles_n, 1, 1), 256, numbers)
        elements = packed_channels * packed_outputs
        pack = HipCall(
            "winograd_weight",
            (("T", STORAGE[problem.dtype]), ("BACK", int(back))),
            (cdiv(elements, 256), 1, 1),
            256,
            (channels, packed_channels, outputs, packed_outputs, *weight),
        )
        return PassCalls(kernel, pack, 16 * elements)
