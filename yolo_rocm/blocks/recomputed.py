"""The output of a block as lean memory keeps it: computed once more from that of its convolution."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..norm.base import Parameters, Statistics
from ..norm.keeping import Activation, changed, laid_out_again
from .block_plan import BlockPlan


class RecomputedBlock(Activation):
    """How an output is computed again.

    Args:
        known: How it was computed.
        y: Output of the convolution, which nobody else can change; neither can they the statistics.
        p: Of the BatchNorm.
        statistics: Of the batch.
        strides: Of the output. With one channel or one pixel they need not be those of `y`, and layers go by them.

    Attributes:
        y: The same.
        p: The same, without what is updated.
        statistics: The same.
    """

    __slots__ = ("_known", "_versions", "p", "statistics", "y")

    def __init__(
        self, known: BlockPlan, y: torch.Tensor, p: Parameters, statistics: Statistics, strides: tuple[int, ...]
    ) -> None:
        weight, bias = p.weight, p.bias
        self.steps = 0
        self._begin()
        self._known, self.y, self.statistics, self._stride = known, y, statistics, strides
        self.p = Parameters(weight, bias, None, None, 0.0, p.eps)
        self._versions = None if weight is None or bias is None else (weight._version, bias._version)

    def check(self) -> None:
        """Make sure that nobody has changed what is read.

        Raises:
            RuntimeError: Somebody has.
        """
        versions = self._versions
        if versions is None:
            return
        weight, bias = self.p[:2]
        assert weight is not None  # or there were no versions
        assert bias is not None
        if weight._version != versions[0]:
            raise changed(weight, versions[0])
        if bias._version != versions[1]:
            raise changed(bias, versions[1])

    def _made_again(self) -> torch.Tensor:
        self.check()
        known = self._known
        value = known.norm.activate(self.y, self.p, self.statistics)
        return value if value.stride() == self._stride else laid_out_again(value, known.shape, self._stride)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield what stays in memory."""
        for tensor in (self.y, *self.p[:2], *self.statistics):
            if tensor is not None:
                yield tensor
