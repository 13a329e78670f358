"""The candidates: kernels with the activation in their epilogue, and convolutions with torch's activation behind."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, ClassVar, Final

import torch

from ...engines.activations import activate_in_place
from ...engines.names import Pass
from ...engines.triton.available import family
from ...engines.triton.call import Call
from ...engines.triton.launch import Launch, prepare
from .. import chunking
from ..algorithms import ALGORITHMS, Algorithm
from ..hip.base import HipAlgorithm
from ..problem import ConvProblem, laid_out
from ..triton import calls
from ..triton.base import TritonAlgorithm
from ..triton.calls import Strides, group_channels, is_half, strides
from ..triton.channels_last import TritonChannelsLast
from ..triton.common import dot, tf32
from ..triton.depthwise import TritonDepthwise
from ..triton.gemm import TritonFlat, TritonGemm
from ..triton.tiles import FLAT, INFERENCE_SIZES, SIZES, fits, inference_tile
from .base import NAME, Forward, FusedAlgorithm, quarantined
from .hip import HipEpilogued
from .problem import FusedProblem


class Separate(FusedAlgorithm):
    """A convolution's own algorithm, then torch's activation in the memory of its result."""

    def __init__(self, inner: Algorithm) -> None:
        """Take the algorithm."""
        self.name, self.engine = inner.name, inner.engine  # type: ignore[misc]
        self.exact, self.kernel = inner.exact, inner.tested_by().kernel  # type: ignore[misc]
        self.inner = inner

    def not_supported_reasons(self, problem: FusedProblem) -> list[str]:
        """Support what the algorithm supports."""
        return self.inner.not_supported_reasons(problem.conv) or quarantined(self, problem)

    def worth_measuring(self, problem: FusedProblem, which: Pass) -> bool:
        """Return what the algorithm says of its forward pass."""
        return self.inner.worth_measuring(problem.conv, which)

    def prepare(self, problem: FusedProblem, which: Pass) -> None:
        """Let the algorithm compile what it launches."""
        self.inner.prepare(problem.conv, which)

    def workspace_bytes(self, problem: FusedProblem) -> int:
        """As the algorithm says."""
        return self.inner.workspace_bytes(problem.conv)

    def bound(self, problem: FusedProblem, budget: int) -> Forward:
        """Return the two, one after the other."""
        forward, (activation, slope) = chunking.fitted(self.inner, problem.conv, budget).forward, problem.epilogue
        last = problem.conv.channels_last

        def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
            return activate_in_place(laid_out(forward(x, weight, bias), last), activation, slope)

        return run

    def smallest_workspace(self, problem: FusedProblem) -> int:
        """Return the workspace of one row of one sample."""
        return chunking.smallest_workspace(self.inner, problem.conv)


class Epilogued(FusedAlgorithm):
    """A Triton kernel that activates its sums before it writes them: nothing is read or written twice."""

    engine: ClassVar[str] = "triton"

    def __init__(self, inner: TritonAlgorithm) -> None:
        """Take the algorithm whose forward pass it is."""
        self.name, self.kernel = inner.name, inner.kernel  # type: ignore[misc]
        self.inner = self._inner = inner

    def not_supported_reasons(self, problem: FusedProblem) -> list[str]:
        """Support what the algorithm supports."""
        return self._inner.not_supported_reasons(problem.conv) or quarantined(self, problem)

    def worth_measuring(self, problem: FusedProblem, which: Pass) -> bool:
        """Return whether the tile fits the layer's channels; those of NCHW are read as they are stored."""
        return self._inner.worth_measuring(problem.conv, which)

    def workspace_bytes(self, problem: FusedProblem) -> int:
        """Return the size of a packed weight."""
        return self._inner.packs * math.prod(problem.conv.weight_shape) * 4

    def call(self, problem: FusedProblem, x: Strides, weight: Strides, y: Strides) -> Call:
        """Describe the launch; tensors: input, packed weight, bias or anything, output."""
        return self._inner.forward_call(problem.conv, x, weight, y, problem.bias, problem.epilogue)

    def bound(self, problem: FusedProblem, budget: int) -> Forward:
        """Return the launch, remembered for each layout of the input."""
        shape, by = problem.conv.output_shape, strides(problem.conv.output_shape, problem.conv.channels_last)
        known: dict[tuple[Any, ...], Launch] = {}

        def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
            y, weight = x.new_empty_strided(shape, by), self._inner.packed(Pass.FORWARD, weight)
            kind = (x.stride(), weight.stride(), tf32(problem.conv))
            launch = known.get(kind)
            if launch is None:
                call = self.call(problem, x.stride(), weight.stride(), by)
                launch = known[kind] = Launch(self._key(problem, kind), call)
            launch(x, weight, x if bias is None else bias.contiguous(), y)
            return y

        return run

    def _key(self, problem: FusedProblem, kind: tuple[Any, ...]) -> Hashable:
        return (NAME, self.name, problem, *kind)

    def prepare(self, problem: FusedProblem, which: Pass) -> None:
        """Compile the launch for tensors that are not views."""
        conv = problem.conv
        x, y = (strides(shape, conv.channels_last) for shape in (conv.input_shape, conv.output_shape))
        call = self.call(problem, x, self._inner.packed_strides(conv, Pass.FORWARD), y)
        prepare(call, (problem.dtype,) * 4, problem.device)


class InferenceGemm(TritonGemm):
    """Tiles that a training has no use for: small ones for small batches, deep ones for many channels."""

    def worth_measuring(self, problem: ConvProblem, which: Pass) -> bool:
        """Return whether the tile is neither mostly padding nor far too narrow, also along the reduction."""
        tile = inference_tile(family(problem.device), is_half(problem), self._size)
        channels, out_channels = group_channels(problem)
        depthwise = problem.groups > 1 and problem.in_channels == problem.groups
        return tile is not None and not depthwise and fits(tile.n, out_channels) and tile.k <= max(16, channels)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Nothing, as there is no backward pass."""
        return 0

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support what the other tiles support, on families that have such a tile."""
        reasons = super().not_supported_reasons(problem)
        if not reasons and inference_tile(family(problem.device), is_half(problem), self._size) is None:
            reasons.append(f"no tile {self._size} for {family(problem.device)}")
        return reasons

    def forward_call(
        self,
        problem: ConvProblem,
        x: Strides,
        weight: Strides,
        y: Strides,
        bias: bool,
        epilogue: calls.Epilogue = calls.PLAIN,
    ) -> Call:
        """Describe the forward pass."""
        tile = inference_tile(family(problem.device), is_half(problem), self._size)
        assert tile is not None  # or it is not supported
        return calls.forward(problem, x, weight, y, bias, tile, dot(problem), epilogue)


class InferenceFlat(TritonFlat):
    """Few channels, by a tile that has room for a bias."""

    def forward_call(
        self,
        problem: ConvProblem,
        x: Strides,
        weight: Strides,
        y: Strides,
        bias: bool,
        epilogue: calls.Epilogue = calls.PLAIN,
    ) -> Call:
        """Describe the forward pass."""
        tile = inference_tile(family(problem.device), is_half(problem), FLAT)
        if tile is None:
            return super().forward_call(problem, x, weight, y, bias, epilogue)
        return calls.forward_flat(problem, x, weight, y, bias, tile, dot(problem), epilogue)


_INNER: Final[tuple[TritonAlgorithm, ...]] = (
    TritonDepthwise(),
    InferenceFlat(),
    *(TritonGemm(size) for size in SIZES),
    *(InferenceGemm(size) for size in INFERENCE_SIZES),
)
FUSED_ALGORITHMS: Final[tuple[FusedAlgorithm, ...]] = (
    *(Separate(algorithm) for algorithm in ALGORITHMS if algorithm.engine not in ("triton", "hip")),
    *(Epilogued(algorithm) for algorithm in _INNER),
    *(Separate(algorithm) for algorithm in ALGORITHMS if isinstance(algorithm, TritonChannelsLast)),
    *(HipEpilogued(algorithm) for algorithm in ALGORITHMS if isinstance(algorithm, HipAlgorithm)),
)
