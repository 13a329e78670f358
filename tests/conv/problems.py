"""Problems to try algorithms on, and a planner that allows only one of them."""

from __future__ import annotations

import random

import torch

from tools.exactness import MOST_RATIO, in_doubles, native_passes, plain_sum_error
from yolo_rocm.conv.algorithms import Algorithm
from yolo_rocm.conv.plan import Planner
from yolo_rocm.conv.problem import ConvProblem

__all__ = [
    "MOST_RATIO",
    "Only",
    "in_doubles",
    "made_problem",
    "native_passes",
    "plain_sum_error",
    "random_problem",
]


class Only(Planner):
    """Plans one algorithm for everything it serves, and refuses the rest."""

    def __init__(self, algorithm: Algorithm, memory_mb: int | None = None) -> None:
        super().__init__("gemm", memory_mb=memory_mb, remember=False)
        self._only = algorithm

    def candidates(self, problem: ConvProblem) -> list[Algorithm]:
        """Return the one algorithm, or nothing."""
        return [] if self._only.not_supported_reasons(problem) else [self._only]


def random_problem(rng: random.Random, dtype: torch.dtype = torch.float64) -> ConvProblem:
    """Draw a valid two-dimensional problem: any stride, padding, dilation, groups, layout, down to 1x1 images."""
    while True:
        kernel = rng.choice([(1, 1), (3, 3), (3, 3), (2, 2), (5, 5), (1, 3), (7, 2), (3, 5)])
        stride = rng.choice([(1, 1), (1, 1), (2, 2), (1, 2), (3, 2)])
        dilation = rng.choice([(1, 1), (1, 1), (1, 1), (2, 2), (1, 3)])
        padding = (rng.randint(0, 4), rng.randint(0, 4))
        channels = rng.choice([(1, 1), (4, 8), (8, 4), (6, 6), (64, 64)])
        groups = rng.choice([1, 1, 1, 2, channels[0]])
        transposed = rng.random() < 0.2
        if transposed and rng.random() < 0.5:
            kernel = stride = (2, 2)
            dilation, padding, groups = (1, 1), (0, 0), 1
        if channels[0] % groups or channels[1] % groups:
            continue
        reach = [max(s, d) for s, d in zip(stride, dilation, strict=True)]
        spare = tuple(rng.randint(0, r - 1) for r in reach) if transposed else (0, 0)
        weight = (channels[0], channels[1] // groups) if transposed else (channels[1], channels[0] // groups)
        shape = (rng.randint(1, 3), channels[0], rng.randint(1, 14), rng.randint(1, 14))
        last = rng.random() < 0.5
        problem = ConvProblem(
            shape, (*weight, *kernel), stride, padding, dilation, spare, groups, transposed, dtype, "cpu", last
        )
        if not problem.problems() and not problem.empty:
            return problem


def made_problem(
    shape=(2, 24, 9, 11), outs=40, kernel=(3, 3), stride=(1, 1), dilation=(1, 1), groups=1, device="cuda:0"
) -> ConvProblem:
    """Return an ordinary convolution in fp32 and NCHW, with padding 1."""
    weight = (outs, shape[1] // groups, *kernel)
    return ConvProblem(shape, weight, stride, (1, 1), dilation, (0, 0), groups, False, torch.float32, device, False)
