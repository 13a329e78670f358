"""Problems to try algorithms on, and a planner that allows only one of them."""

from __future__ import annotations

import torch

from yolo_rocm.conv.algorithms import Algorithm
from yolo_rocm.conv.plan import Planner
from yolo_rocm.conv.problem import ConvProblem


class Only(Planner):
    """Plans one algorithm for everything it serves, and refuses the rest."""

    def __init__(self, algorithm: Algorithm, memory_mb: int | None = None) -> None:
        super().__init__("gemm", memory_mb=memory_mb, remember=False)
        self._only = algorithm

    def candidates(self, problem: ConvProblem) -> list[Algorithm]:
        """Return the one algorithm, or nothing."""
        return [] if self._only.not_supported_reasons(problem) else [self._only]


def made_problem(
    shape=(2, 24, 9, 11), outs=40, kernel=(3, 3), stride=(1, 1), dilation=(1, 1), groups=1, device="cuda:0"
) -> ConvProblem:
    """Return an ordinary convolution in fp32 and NCHW, with padding 1."""
    weight = (outs, shape[1] // groups, *kernel)
    return ConvProblem(shape, weight, stride, (1, 1), dilation, (0, 0), groups, False, torch.float32, device, False)
