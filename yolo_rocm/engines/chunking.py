"""Keep a pass inside a workspace budget: chunks of the batch that fit, and one smaller try when memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch

from .operator import BaseAlgorithm, Problem

# After an out-of-memory error the next try may use this part of the budget.
_SECOND_TRY = 8


@lru_cache(maxsize=8192)
def workspace(algorithm: BaseAlgorithm[Any], problem: Problem) -> int:
    """Return the workspace of an algorithm, computed once for each problem."""
    return algorithm.workspace_bytes(problem)


def chunks(batch: int, one: int, budget: int) -> Iterator[slice]:
    """Cut a batch into parts whose workspace fits, down to one sample.

    Args:
        batch: Number of samples.
        one: Workspace of one sample.
        budget: Workspace in bytes.
    """
    step = max(1, min(batch, budget // max(1, one)))
    for start in range(0, batch, step):
        yield slice(start, min(start + step, batch))


def budget_of_second_try(budget: int) -> int:
    """Give cached memory back after a pass has run out of it, and return what the next try may take.

    To be called outside of the exception's handler, so that the tensors of the failed try are free.
    """
    torch.cuda.empty_cache()
    return budget // _SECOND_TRY
