"""BatchNorm with its activation in Triton, an algorithm for each size of tile: the tuner chooses between them.

Forward reads the input twice and writes the activation; backward reads input and gradient twice and writes the input's
gradient. Sums go through partial results in a fixed order: no atomics.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ...engines.names import Pass
from ...engines.triton.available import device_reason
from ...engines.triton.launch import prepare
from ..base import LaunchedNorm, NormAlgorithm, NormBound
from ..problem import NormProblem
from .passes import passes
from .tiles import MOST_WHOLE, SIZES

_LARGEST: Final = 2**31


class TritonNorm(LaunchedNorm):
    """Statistics, activation and gradients with tiles of one size."""

    engine: ClassVar[str] = "triton"
    kernel: ClassVar[str | None] = "batch_norm"

    def __init__(self, size: str) -> None:
        """Take the size of the tiles, one of the table's."""
        self.name = f"triton_{size}"  # type: ignore[misc]
        self._size = size

    def not_supported_reasons(self, problem: NormProblem) -> list[str]:
        """Support fp32, fp16 and bf16; the values of a channel and the planes of the batch are counted."""
        is_too_large = max(problem.rows, problem.shape[0] * problem.channels) >= _LARGEST
        return self.reasons(problem, is_too_large, device_reason(problem.device))

    def workspace_bytes(self, problem: NormProblem) -> int:
        """Partial results, or in backward half as many and what the gradient of the input is computed from."""
        partials = passes(self._size, problem).partials
        return 4 * max(partials, partials // 2 + 2 * problem.channels)

    def worth_measuring(self, problem: NormProblem, which: Pass) -> bool:
        """Leave out whole channels that are long, and sizes that make no difference because each is one part anyway."""
        own = passes(self._size, problem)
        if self._size == "one":
            return own.values <= MOST_WHOLE
        return self._size == SIZES[0] or not own.is_whole

    def prepare(self, problem: NormProblem, which: Pass) -> None:
        """Compile what a pass launches."""
        for call, dtypes in passes(self._size, problem).described(which):
            prepare(call, dtypes, problem.device)

    def tested_by(self) -> NormAlgorithm:
        """Return the algorithm of the smallest tiles: a small problem has several parts for it."""
        return TRITON[0]

    def bound(self, problem: NormProblem) -> NormBound:
        """Return the passes with their launches at hand."""
        own = passes(self._size, problem)
        return NormBound(own.forward, own.activate, own.backward)


TRITON: Final[tuple[NormAlgorithm, ...]] = tuple(TritonNorm(size) for size in SIZES)
