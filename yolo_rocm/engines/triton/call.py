"""A kernel launch as plain data: to launch, to compile ahead of time, to compile for a card that is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """One launch, without its tensors.

    Attributes:
        module: Full name of the module that the kernel is in.
        kernel: Its name.
        grid: Programs in three dimensions.
        numbers: Arguments after the tensors, integers and floats, in the kernel's order.
        constants: `tl.constexpr` arguments by name, in the kernel's order.
        warps: Warps (wavefronts) of a program.
        stages: Pipeline stages of its loop.
        updated: Which of its tensors, by their places, it changes rather than writes: launched twice, it changes them
            twice.
    """

    module: str
    kernel: str
    grid: tuple[int, int, int]
    numbers: tuple[Any, ...]
    constants: dict[str, Any]
    warps: int
    stages: int
    updated: tuple[int, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of Triton's own launch."""
        return {**self.constants, "num_warps": self.warps, "num_stages": self.stages}
