"""What one call of a block has besides the tensors that autograd keeps for it, and what lean memory keeps itself."""

from __future__ import annotations

from typing import Final

import torch

from ..norm.algorithms.base import Parameters, Statistics
from ..norm.keeping import Keeping, changed
from .again import Again
from .known import Known

_SECOND_TIME: Final = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time."
)


class Call:
    """A call.

    Attributes:
        known: How it is computed.
        p: Of the BatchNorm.
        kernel: Weight of the convolution as the layer has it, for gradients of gradients.
        offset: Its bias, likewise.
        statistics: Of the batch.
    """

    __slots__ = ("kernel", "known", "offset", "p", "statistics")

    statistics: Statistics

    def __init__(self, known: Known, p: Parameters, kernel: torch.Tensor, offset: torch.Tensor | None) -> None:
        self.known, self.p, self.kernel, self.offset = known, p, kernel, offset


class LeanCall(Call):
    """A call while this thread keeps recipes.

    Where nobody else's hooks take what autograd keeps, it is kept here: that takes a fraction of the time of hooks, and
    is let go as soon as it has been read.

    Attributes:
        again: Recipe of the result.
        keeping: What is kept of the input, where that is not the input itself.
        holds: Whether all that backward needs is kept here.
    """

    __slots__ = ("_kernel", "_version", "_x", "_x_version", "again", "holds", "keeping")

    _kernel: torch.Tensor
    _version: int
    _x: torch.Tensor | None
    _x_version: int

    def __init__(self, known: Known, p: Parameters, kernel: torch.Tensor, offset: torch.Tensor | None) -> None:
        self.known, self.p, self.kernel, self.offset = known, p, kernel, offset
        self.again: Again | None = None
        self.keeping: Keeping | None = None
        self.holds = False

    def hold(self, kernel: torch.Tensor, x: torch.Tensor) -> None:
        """Keep the weight that the convolution reads, and the input where nothing is kept in its place."""
        self._kernel, self._version = kernel, kernel._version
        if self.keeping is None:
            self._x, self._x_version = x, x._version
        else:
            self._x = None

    def held(self) -> tuple[torch.Tensor, Again, Keeping | None, torch.Tensor | None]:
        """Return what is kept: weight, recipe of the result, and input, as its recipe or as it is.

        Raises:
            RuntimeError: It was let go, or changed in place.
        """
        again, kernel, x = self.again, self._kernel, self._x
        if again is None:
            raise RuntimeError(_SECOND_TIME)
        again.check()
        if kernel._version != self._version:
            raise changed(kernel, self._version)
        if x is not None and x._version != self._x_version:
            raise changed(x, self._x_version)
        return kernel, again, self.keeping, x

    def let_go(self) -> None:
        """Keep nothing any longer."""
        self.again = self.keeping = self._x = None
        self._kernel = self.kernel
