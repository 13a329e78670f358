"""What a kernel is given that writes several tensors, and how what it wrote is compared with fp64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch

# Roundings to fp32 that a result may have lost, in units of its terms' magnitudes: all of it together, one element.
_ROUNDINGS: Final = 8
_OF_AN_ELEMENT: Final = 64


class Compared(NamedTuple):
    """What a kernel wrote, what it should have written, in units of what, and the rounding to half precision."""

    got: torch.Tensor
    exact: torch.Tensor
    magnitude: torch.Tensor
    rounding: float = 0.0
    smallest: float = 0.0  # normal number of that precision: below, roundings do not become smaller

    @property
    def error(self) -> float:
        """Relative error of all of it."""
        return float((self.got.double() - self.exact).norm() / self.magnitude.norm().clamp_min(1e-300))

    @property
    def allowed(self) -> float:
        """What it may be."""
        return _ROUNDINGS * torch.finfo(torch.float32).eps + self.rounding

    @property
    def wrong(self) -> int:
        """Elements that are further off than roundings explain."""
        eps = torch.finfo(torch.float32).eps
        most = _OF_AN_ELEMENT * eps * self.magnitude + self.rounding * self.exact.abs().clamp_min(self.smallest)
        return int(((self.got.double() - self.exact).abs() > most).sum() + self.got.isnan().sum())


Compare = Callable[[list[torch.Tensor], list[torch.Tensor]], list[Compared]]


@dataclass(frozen=True)
class WritingTask:
    """Tensors of a kernel and what is to come out.

    Attributes:
        tensors: In the kernel's order; of those it writes, what they are before where it updates them, otherwise the
            shape.
        written: Places of what it writes.
        updated: Places of what it changes.
        compare: Takes those tensors afterwards, and which of their elements were written.
    """

    tensors: list[torch.Tensor]
    written: tuple[int, ...]
    updated: tuple[int, ...]
    compare: Compare
