"""The algorithms, best guess first. A new one is a new file and a line here."""

from __future__ import annotations

from .base import Algorithm
from .native import Aten, Vendor
from .pointwise import Pointwise
from .transposed import Transposed
from .unfold import Unfold
from .windows import Windows

_DIRECT = (Pointwise(), Unfold(), Windows())

ALGORITHMS: tuple[Algorithm, ...] = (Vendor(), *_DIRECT, Transposed(_DIRECT), Aten())

__all__ = ["ALGORITHMS", "Algorithm"]
