"""Implicit GEMMs in Triton, an algorithm for each size of tile: the tuner chooses tiles as it chooses algorithms."""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import partial
from typing import ClassVar, Final

import torch

from ...engines.triton.available import family, processors
from ...engines.triton.launch import launch, prepare
from ..kernels import calls
from ..kernels.calls import Call, is_half, strides
from ..kernels.tiles import NVIDIA, SIZES, Tile, Tiles, tiles
from ..problem import ConvProblem
from .base import Algorithm, Bound
from .triton_bound import bound_passes
from .triton_common import add_shares, dot, empty_for, remembered, tf32, triton_reasons

# Below this many channels a step of the inner dimension would be mostly padding.
_FEW_CHANNELS: Final = 16


class TritonGemm(Algorithm):
    """Pixels x channels tiles of one size; addresses are computed for each tap, nothing is copied but the weight."""

    engine: ClassVar[str] = "triton"
    kernel: ClassVar[str | None] = "gemm"

    def __init__(self, size: str) -> None:
        """Take the size of the tiles, a key of the curated table."""
        self.name = f"triton_{size}"  # type: ignore[misc]
        self._size = size

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve two-dimensional convolutions of fp32, fp16 and bf16."""
        return triton_reasons(problem, self)

    def worth_measuring(self, problem: ConvProblem, which: str) -> bool:
        """Leave out tiles that would be mostly padding or far too narrow, and what is known to be slow."""
        outs, channels = problem.out_channels // problem.groups, problem.in_channels // problem.groups
        if _depthwise(problem) or (turning_is_untried(problem, which) and self._size not in SIZES[::2]):
            return False
        if which == "grad_weight":
            if not _turned_is_faster(problem, weight=True) or channels < _FEW_CHANNELS:
                return _fits(self._tile(problem, which).m, outs)
            return False
        if self._size != SIZES[0] and _turned_is_faster(problem):
            return False
        return _fits(self._tile(problem, which).n, outs if which == "forward" else channels)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """A packed weight, or the partial sums of the gradient of the weight."""
        by = [strides(shape, problem.channels_last) for shape in (problem.output_shape, problem.input_shape)]
        shares = self._weight_call(problem, by[0], by[1])[1]
        return (shares + 1) * math.prod(problem.weight_shape) * 4

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        y = empty_for(problem, problem.output_shape, x)
        weight = _packed(weight, outs_together=problem.dtype == torch.float32)
        launch(
            self._key("forward", problem, x.stride(), weight.stride(), bias is not None),
            lambda: self._forward_call(problem, x.stride(), weight.stride(), y.stride(), bias is not None),
            (x, weight, x if bias is None else bias, y),
        )
        return y

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        gx = empty_for(problem, problem.input_shape, grad)
        weight = _packed(weight)
        launch(
            self._key("grad_input", problem, grad.stride(), weight.stride()),
            lambda: self._grad_input_call(problem, grad.stride(), weight.stride(), gx.stride()),
            (grad, weight, grad, gx),
        )
        return gx

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight: shares of the pixels side by side, then their sum in a fixed order."""
        key = self._key("grad_weight", problem, grad.stride(), x.stride())
        call, shares = remembered(key, lambda: self._weight_call(problem, grad.stride(), x.stride()))
        total = math.prod(problem.weight_shape)
        partial = x.new_empty((shares * total,), dtype=torch.float32)
        launch(key, lambda: call, (x, grad, partial))
        return add_shares(problem, partial, shares)

    def bound(self, problem: ConvProblem) -> Bound:
        """Return the passes with their launches at hand."""
        together = problem.dtype == torch.float32
        return bound_passes(
            self,
            problem,
            partial(self._key, "forward", problem),
            partial(_packed, outs_together=together),
            partial(self._key, "grad_input", problem),
            _packed,
            partial(self._key, "grad_weight", problem),
        )

    def _key(
        self, which: str, problem: ConvProblem, first: calls.Strides, second: calls.Strides, bias: bool = False
    ) -> Hashable:
        """Return all that a launch is made from; the strides are those of source and weight, or gradient and input."""
        return (self.name, which, problem, first, second, bias, tf32(problem))

    def prepare(self, problem: ConvProblem, which: str) -> None:
        """Compile what a pass launches."""
        self.prepare_reading(problem, which, problem.channels_last)

    def prepare_reading(self, problem: ConvProblem, which: str, channels_last: bool) -> None:
        """Compile what a pass launches, where the operands are channels_last or not, whatever the result is."""
        x, y = strides(problem.input_shape, channels_last), strides(problem.output_shape, channels_last)
        dtypes: tuple[torch.dtype, ...] = (problem.dtype,) * 4
        if which == "forward":
            result = strides(problem.output_shape, problem.channels_last)
            together = problem.dtype == torch.float32
            call = self._forward_call(problem, x, _packed_strides(problem, together), result, False)
        elif which == "grad_input":
            result = strides(problem.input_shape, problem.channels_last)
            call = self._grad_input_call(problem, y, _packed_strides(problem, False), result)
        else:
            call = self._weight_call(problem, y, x)[0]
            dtypes = (problem.dtype, problem.dtype, torch.float32)
        prepare(call, dtypes, problem.device)

    def _tiles(self, problem: ConvProblem) -> Tiles:
        return tiles(family(problem.device), is_half(problem))

    def _tile(self, problem: ConvProblem, which: str) -> Tile:
        known = self._tiles(problem)
        return known.weight[self._size] if which == "grad_weight" else known.gather[self._size]

    def _forward_call(
        self, problem: ConvProblem, x: calls.Strides, weight: calls.Strides, y: calls.Strides, bias: bool
    ) -> Call:
        return calls.forward(problem, x, weight, y, bias, self._tile(problem, "forward"), dot(problem))

    def _grad_input_call(
        self, problem: ConvProblem, grad: calls.Strides, weight: calls.Strides, gx: calls.Strides
    ) -> Call:
        return calls.grad_input(problem, grad, weight, gx, self._tile(problem, "grad_input"), dot(problem))

    def _weight_call(self, problem: ConvProblem, grad: calls.Strides, x: calls.Strides) -> tuple[Call, int]:
        tile = self._tile(problem, "grad_weight")
        return calls.grad_weight(problem, grad, x, tile, dot(problem), processors(problem.device), rows=False)


class TritonRows(TritonGemm):
    """The gradient of a weight three wide: each gradient that is read serves the three taps of a row."""

    kernel: ClassVar[str | None] = "rows"

    def __init__(self, size: str) -> None:
        """Take the size of the tiles."""
        super().__init__(size)
        self.name = f"triton_rows_{size}"  # type: ignore[misc]

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve kernels three wide."""
        reasons = triton_reasons(problem, self)
        if len(problem.kernel) == 2 and problem.kernel[1] != 3:
            reasons.insert(0, f"kernel {problem.kernel} is not 3 wide")
        return reasons

    def worth_measuring(self, problem: ConvProblem, which: str) -> bool:
        """Be a candidate for the gradient of the weight alone; the other passes are those of the plain tiles."""
        channels = problem.in_channels // problem.groups
        if which != "grad_weight" or _depthwise(problem) or turning_is_untried(problem, which):
            return False
        return not _turned_is_faster(problem, weight=True) and _fits(self._tile(problem, which).n, channels)

    def _tile(self, problem: ConvProblem, which: str) -> Tile:
        known = self._tiles(problem)
        return known.rows[self._size] if which == "grad_weight" else known.gather[self._size]

    def _weight_call(self, problem: ConvProblem, grad: calls.Strides, x: calls.Strides) -> tuple[Call, int]:
        tile = self._tile(problem, "grad_weight")
        return calls.grad_weight(problem, grad, x, tile, dot(problem), processors(problem.device), rows=True)


class TritonFlat(TritonGemm):
    """Few channels, such as those of an image: taps and channels are one inner dimension, one step for 3 x 3 x 3."""

    kernel: ClassVar[str | None] = "flat"

    def __init__(self) -> None:
        """Use the smallest tiles for the gradients."""
        super().__init__(SIZES[0])
        self.name = "triton_flat"  # type: ignore[misc]

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Serve fewer than 16 channels a group."""
        reasons = triton_reasons(problem, self)
        channels = problem.in_channels // max(1, problem.groups)
        if channels >= _FEW_CHANNELS:
            reasons.insert(0, f"{channels} channels are not fewer than {_FEW_CHANNELS}")
        return reasons

    def worth_measuring(self, problem: ConvProblem, which: str) -> bool:
        """Be a candidate for the forward pass alone."""
        return which == "forward" and not _depthwise(problem)

    def _forward_call(
        self, problem: ConvProblem, x: calls.Strides, weight: calls.Strides, y: calls.Strides, bias: bool
    ) -> Call:
        return calls.forward_flat(problem, x, weight, y, bias, self._tiles(problem).flat, dot(problem))


def _packed_strides(problem: ConvProblem, outs_together: bool) -> calls.Strides:
    outs, channels, height, width = problem.weight_shape
    if outs_together:
        return (1, outs, width * channels * outs, channels * outs)
    return strides(problem.weight_shape, height * width > 1 or problem.channels_last)


def _turned_is_faster(problem: ConvProblem, weight: bool = False) -> bool:
    """Tell where NCHW is better turned around before it is read, as far as the H200 has shown; see `triton_turned`."""
    return not problem.channels_last and family(problem.device) == NVIDIA and (weight or is_half(problem))


def turning_is_untried(problem: ConvProblem, which: str) -> bool:
    """Tell where nobody has seen yet which layout is better to read: both are tried then, in half as many sizes."""
    known = problem.channels_last or family(problem.device) == NVIDIA
    return not known and (which == "grad_weight" or is_half(problem))


def _depthwise(problem: ConvProblem) -> bool:
    """Tell where there is nothing to multiply matrices for."""
    return problem.groups > 1 and problem.in_channels == problem.groups


def _fits(size: int, channels: int) -> bool:
    return (size <= 16 or size < 2 * channels) and (size >= 32 or channels <= 4 * size)


def _packed(weight: torch.Tensor, outs_together: bool = False) -> torch.Tensor:
    """Return a weight whose channels lie side by side for each tap: a few hundred kilobytes to copy at the most.

    With `outs_together` output channels do, rather than input channels: a tile of taps is then read along its own
    columns, without which fp32 units wait for it (2.5x, NVIDIA H200).
    """
    if outs_together:
        return weight.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)
    return weight if weight.shape[2] * weight.shape[3] == 1 else weight.contiguous(memory_format=torch.channels_last)
