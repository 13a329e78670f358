"""Implicit GEMMs in Triton, an algorithm for each size of tile: the tuner chooses tiles as it chooses algorithms."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from ...engines.devices import processors
from ...engines.names import Pass
from ...engines.triton.available import family
from ...engines.triton.call import Call
from ..launched import Strides
from ..problem import ConvProblem
from . import calls
from .base import TritonAlgorithm
from .calls import is_half, strides
from .common import dot, triton_reasons
from .tiles import FEW_CHANNELS, FLAT, SIZES, Tile, Tiles, fits, inference_tile, measured, tiles


class TritonGemm(TritonAlgorithm):
    """Pixels x channels tiles of one size; addresses are computed for each tap, nothing is copied but the weight."""

    kernel: ClassVar[str | None] = "gemm"
    packs: ClassVar[bool] = True
    rows: ClassVar[bool] = False  # whether grad-weight is computed by rows of three taps

    def __init__(self, size: str) -> None:
        """Take the size of the tiles, a key of the curated table."""
        self.name = f"triton_{size}"  # type: ignore[misc]
        self._size = size

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support two-dimensional convolutions of fp32, fp16 and bf16."""
        return triton_reasons(problem, self)

    def worth_measuring(self, problem: ConvProblem, which: Pass) -> bool:
        """Return whether the table of what is measured has this size, and it fits the layer's channels."""
        return self.worth_measuring_on(problem, which, copied=False)

    def worth_measuring_on(self, problem: ConvProblem, which: Pass, copied: bool) -> bool:
        """Return whether a pass is worth a measurement on tensors as they are stored, or on a channels_last copy."""
        if _is_depthwise(problem):
            return False
        channels, out_channels = problem.group_channels
        kernel, tile = self._kernel(which), self._tile(problem, which)
        own = (family(problem.device), problem.channels_last, is_half(problem))
        sizes = measured(*own, kernel, channels, problem.kernel[1])
        wide, of = {
            "gather": (tile.n, out_channels if which == Pass.FORWARD else channels),
            "weight": (tile.m, out_channels),
            "rows": (tile.n, channels),
        }[kernel]
        return self._size in (sizes.copied if copied else sizes.stored) and fits(wide, of)

    def packed_strides(self, problem: ConvProblem, back: bool, weight: Strides) -> Strides:
        """Return the strides of a weight whose channels are contiguous for each tap: at most some 100 KiB to copy.

        In a forward pass of fp32 the output channels are, rather than the input channels: a tile of taps is then read
        along its own columns, without which fp32 units wait for it (2.5x, NVIDIA H200).
        """
        if not back and problem.dtype == torch.float32:
            out_channels, channels, _, width = problem.weight_shape
            return (1, out_channels, width * channels * out_channels, channels * out_channels)
        return weight if math.prod(problem.kernel) == 1 else strides(problem.weight_shape, True)

    def weight_layout(self, problem: ConvProblem) -> torch.memory_format:
        """Return that of `packed_strides` in half precision; in fp32 the two passes differ."""
        taps = math.prod(problem.kernel)
        return torch.channels_last if taps > 1 and is_half(problem) else torch.preserve_format

    def gather_call(
        self, problem: ConvProblem, back: bool, src: Strides, weight: Strides, out: Strides, bias: bool
    ) -> Call:
        """Describe forward or grad-input."""
        tile = self._tile(problem, Pass.GRAD_INPUT if back else Pass.FORWARD)
        return calls.gather_gemm(problem, src, weight, out, bias, tile, dot(problem), back)

    def grad_weight_call(self, problem: ConvProblem, grad: Strides, x: Strides) -> tuple[Call, int]:
        """Describe the partial sums of the gradient of the weight."""
        tile = self._tile(problem, Pass.GRAD_WEIGHT)
        return calls.grad_weight(problem, grad, x, tile, dot(problem), processors(problem.device), self.rows)

    def _kernel(self, which: Pass) -> str:
        """Return the kernel of a pass as `Tiles` names it."""
        return "gather" if which != Pass.GRAD_WEIGHT else "rows" if self.rows else "weight"

    def _tile(self, problem: ConvProblem, which: Pass) -> Tile:
        found: dict[str, Tile] = getattr(_tiles(problem), self._kernel(which))
        return found[self._size]


class TritonRows(TritonGemm):
    """The gradient of a weight three wide: each gradient that is read is used for the three taps of a row."""

    kernel: ClassVar[str | None] = "rows"
    rows: ClassVar[bool] = True

    def __init__(self, size: str) -> None:
        """Take the size of the tiles."""
        super().__init__(size)
        self.name = f"triton_rows_{size}"  # type: ignore[misc]

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support kernels three wide."""
        reasons = triton_reasons(problem, self)
        if len(problem.kernel) == 2 and problem.kernel[1] != 3:
            reasons.insert(0, f"kernel {problem.kernel} is not 3 wide")
        return reasons

    def worth_measuring_on(self, problem: ConvProblem, which: Pass, copied: bool) -> bool:
        """Return whether grad-weight is worth a measurement; the other passes are those of the plain tiles."""
        return which == Pass.GRAD_WEIGHT and super().worth_measuring_on(problem, which, copied)


class TritonFlat(TritonGemm):
    """Few channels, such as those of an image: the reduction is over taps and channels, one step for 3 x 3 x 3."""

    kernel: ClassVar[str | None] = "flat"

    def __init__(self) -> None:
        """Use the smallest tiles for the gradients."""
        super().__init__(SIZES[0])
        self.name = "triton_flat"  # type: ignore[misc]

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support fewer than 16 channels a group."""
        reasons = triton_reasons(problem, self)
        channels = problem.in_channels // max(1, problem.groups)
        if channels >= FEW_CHANNELS:
            reasons.insert(0, f"{channels} channels are not fewer than {FEW_CHANNELS}")
        return reasons

    def worth_measuring(self, problem: ConvProblem, which: Pass) -> bool:
        """Return whether it is the forward pass of a layer that is not depthwise; the others are the plain tiles'."""
        return which == Pass.FORWARD and not _is_depthwise(problem)

    def gather_call(
        self, problem: ConvProblem, back: bool, src: Strides, weight: Strides, out: Strides, bias: bool
    ) -> Call:
        """Describe forward by this kernel, grad-input by the plain one."""
        if back:
            return super().gather_call(problem, back, src, weight, out, bias)
        own = inference_tile(family(problem.device), is_half(problem), FLAT) if problem.bias else None
        return calls.forward_flat(problem, src, weight, out, bias, own or _tiles(problem).flat, dot(problem))


class TritonInference(TritonGemm):
    """Tiles that a training has no use for: small ones for small batches, deep ones for many channels."""

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support what the other tiles support, on families that have such a tile."""
        reasons = super().not_supported_reasons(problem)
        if not reasons and self._own(problem) is None:
            reasons.append(f"no tile {self._size} for {family(problem.device)}")
        return reasons

    def worth_measuring(self, problem: ConvProblem, which: Pass) -> bool:
        """Return whether the tile is neither mostly padding nor far too narrow, also along the reduction."""
        tile = self._own(problem)
        channels, out_channels = problem.group_channels
        fitting = tile is not None and fits(tile.n, out_channels) and tile.k <= max(16, channels)
        return fitting and not _is_depthwise(problem)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """A packed weight, as there is no backward pass."""
        return math.prod(problem.weight_shape) * 4

    def _own(self, problem: ConvProblem) -> Tile | None:
        return inference_tile(family(problem.device), is_half(problem), self._size)

    def _tile(self, problem: ConvProblem, which: Pass) -> Tile:
        tile = self._own(problem)
        assert tile is not None  # or it is not supported
        return tile


def _is_depthwise(problem: ConvProblem) -> bool:
    """Return whether there is nothing to multiply matrices for."""
    return problem.groups > 1 and problem.in_channels == problem.groups


def _tiles(problem: ConvProblem) -> Tiles:
    return tiles(family(problem.device), is_half(problem))
