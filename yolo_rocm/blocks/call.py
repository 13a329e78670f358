"""What one call of a block has besides the tensors that autograd keeps for it, and what lean memory keeps itself."""

from __future__ import annotations

from typing import Final

import torch

from ..norm.base import Parameters, Statistics
from ..norm.keeping import Keeping, changed
from .block_plan import BlockPlan

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
        version: Of `kernel`, where a copy of another data type was computed with.
    """

    __slots__ = ("kernel", "known", "offset", "p", "version")

    version: int

    def __init__(self, known: BlockPlan, p: Parameters, kernel: torch.Tensor, offset: torch.Tensor | None) -> None:
        self.known, self.p, self.kernel, self.offset = known, p, kernel, offset

    def check_kernel(self) -> None:
        """Refuse a weight that was changed since a copy of it was computed with.

        Raises:
            RuntimeError: It was.
        """
        if self.kernel._version != self.version:
            raise changed(self.kernel, self.version, "Gradients of gradients are computed with it once more.")


class LeanCall(Call):
    """A call while this thread keeps recipes.

    Where nobody else's hooks take what autograd keeps, it is kept here: that takes a fraction of the time of hooks, and
    is let go as soon as it has been read.

    Attributes:
        offers: Whether the result is large enough to be computed again.
        computed: Output of the convolution and statistics that it is computed from, while it has no recipe.
        keeping: What is kept of the input, where that is not the input itself.
        holds: Whether all that backward needs is kept here.
    """

    __slots__ = ("_statistics", "_versions", "_watched", "_x", "_y", "computed", "holds", "keeping", "offers")

    _x: torch.Tensor | None
    _y: torch.Tensor | None
    _statistics: Statistics
    _watched: tuple[torch.Tensor, ...]  # what backward reads and others can change
    _versions: tuple[int, ...]

    def __init__(
        self, known: BlockPlan, p: Parameters, kernel: torch.Tensor, offset: torch.Tensor | None, offers: bool
    ) -> None:
        super().__init__(known, p, kernel, offset)
        self.offers = offers
        self.computed: tuple[torch.Tensor, Statistics] | None = None
        self.keeping: Keeping | None = None
        self.holds = False

    def hold(self, kernel: torch.Tensor, x: torch.Tensor, y: torch.Tensor, statistics: Statistics) -> None:
        """Keep what backward reads; the input only where nothing is kept in its place."""
        self._y, self._statistics = y, statistics
        self._x = x if self.keeping is None else None
        weight, bias = self.p[:2]
        read = x if self.keeping is None else kernel
        scale, shift = (kernel, kernel) if weight is None or bias is None else (weight, bias)
        self._watched = (kernel, read, scale, shift)
        self._versions = (kernel._version, read._version, scale._version, shift._version)

    def held(self) -> tuple[torch.Tensor, torch.Tensor, Keeping | None, torch.Tensor | None, Statistics]:
        """Return weight and output of the convolution, its recipe, its input, and statistics.

        Raises:
            RuntimeError: It was let go, or changed in place.
        """
        y = self._y
        if y is None:
            raise RuntimeError(_SECOND_TIME)
        kernel, read, scale, shift = self._watched
        if (kernel._version, read._version, scale._version, shift._version) != self._versions:
            pairs = zip(self._watched, self._versions, strict=True)
            raise next(changed(each, version) for each, version in pairs if each._version != version)
        return kernel, y, self.keeping, self._x, self._statistics

    def let_go(self) -> None:
        """Keep nothing any longer."""
        self.keeping = self._x = self._y = None
        self._watched, self._versions = (), ()
