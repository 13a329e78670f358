"""The output of a block as lean memory keeps it: computed once more from that of its convolution."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..norm.algorithms.base import Parameters, Statistics
from ..norm.autocast import without_autocast
from ..norm.keeping import Activation, Done, changed
from .known import Known


class Again(Activation):
    """How an output is computed again.

    Args:
        known: How it was computed.
        eps: Of the BatchNorm.
        y: Output of the convolution, which nobody else can change; neither can they the statistics.
        weight: Of the BatchNorm.
        bias: Of the BatchNorm.
        statistics: Of the batch.
    """

    __slots__ = ("_bias", "_eps", "_known", "_statistics", "_versions", "_weight", "_y")

    def __init__(
        self,
        known: Known,
        eps: float,
        y: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        statistics: Statistics,
    ) -> None:
        self._shape, self._stride, self.steps = known.shape, known.strides, 0
        self._known, self._eps, self._y, self._statistics = known, eps, y, statistics
        self._weight, self._bias = weight, bias
        self._versions = None if weight is None or bias is None else (weight._version, bias._version)

    def _make(self, done: Done) -> torch.Tensor:
        weight, bias, versions = self._weight, self._bias, self._versions
        if versions is not None and weight is not None and bias is not None:
            for parameter, version in ((weight, versions[0]), (bias, versions[1])):
                if parameter._version != version:
                    raise changed(parameter, version)
        p = Parameters(weight, bias, None, None, 0.0, self._eps)
        return without_autocast(self._known.norm.activate, self._y, p, self._statistics)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield what stays in memory."""
        for tensor in (self._y, self._weight, self._bias, *self._statistics):
            if tensor is not None:
                yield tensor
