"""ConvTranspose through the Triton kernels of ordinary convolutions."""

from __future__ import annotations

from typing import ClassVar

from ..base import Algorithm
from ..gemm.transposed import Transposed
from ..problem import ConvProblem


class TritonTransposed(Transposed):
    """Its forward pass is the gradient of an input, phase by phase, so that an upsampling kernel wastes nothing."""

    name: ClassVar[str] = "triton_transposed"
    engine: ClassVar[str] = "triton"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Support what the ordinary counterpart supports."""
        reasons = super().not_supported_reasons(problem)
        if reasons or len(problem.kernel) != 2:
            return reasons or [f"{len(problem.kernel)} spatial dimensions, not 2"]
        return self.direct_algorithms[0].not_supported_reasons(problem.direct())

    def tested_by(self) -> Algorithm:
        """Return the ordinary counterpart."""
        return self.direct_algorithms[0]
