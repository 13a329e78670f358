"""BatchNorm of engine `hip`: kernels in C++ for HIP and CUDA, next to the algorithm that launches them.

One source has all six of them, compiled at run time after the engine's prelude with layout, data type and activation as
defines. Statistics of parts are combined in an order that never changes; nothing is added atomically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..algorithms.base import NormAlgorithm


def algorithms() -> list[NormAlgorithm]:
    """Return the algorithms of the engine; no compiler is looked for and no device queried."""
    from .batch_norm import HipNorm

    return [HipNorm()]


# The table of algorithms comes first, whichever module of this package is imported: it asks for the list above.
from ..algorithms import base as _base  # noqa: E402, F401
