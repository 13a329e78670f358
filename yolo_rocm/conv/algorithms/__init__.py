"""The algorithms of convolution, one idea a file: native, pure PyTorch (`gemm`), Triton, kernels in C++ (`hip`).

Algorithms import `base`, `problem`, `kernels` (those of Triton) and `engines`; nothing here chooses between them. Those
of `hip` are in a package of their own, next to their sources. A new one is a new file and a line below, a removed one
the same: plan files that name it are measured again. The order breaks ties where nothing has been measured.
"""

from __future__ import annotations

from ..hip import algorithms as hip_algorithms
from ..kernels.tiles import ROW_SIZES, SIZES
from .base import Algorithm
from .columns import Columns
from .depthwise import DepthwiseKernel, DepthwiseShift
from .native import Aten, Vendor
from .planes import Planes
from .pointwise import Pointwise
from .shift_rows import ShiftRows
from .transposed import Transposed, TransposedShuffle
from .triton_channels_last import TritonChannelsLast
from .triton_depthwise import TritonDepthwise
from .triton_gemm import TritonFlat, TritonGemm, TritonRows
from .triton_transposed import TritonTransposed
from .unfold import Unfold
from .windows import Windows
from .winograd import Winograd2, Winograd4

_ANYTHING_DIRECT = (Pointwise(), Unfold(), Windows())
_TILES = (*(TritonGemm(size) for size in SIZES), *(TritonRows(size) for size in ROW_SIZES))

ALGORITHMS: tuple[Algorithm, ...] = (
    Vendor(),
    DepthwiseKernel(),
    DepthwiseShift(),
    *_ANYTHING_DIRECT,
    Planes(),
    Columns(),
    ShiftRows(),
    Winograd2(),
    Winograd4(),
    TransposedShuffle(),
    Transposed(_ANYTHING_DIRECT),
    TritonDepthwise(),
    TritonFlat(),
    *_TILES,
    *(TritonChannelsLast(tile) for tile in _TILES),
    TritonTransposed((TritonGemm("l"),)),
    *hip_algorithms(),
    Aten(),
)
BY_NAME: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in ALGORITHMS}

__all__ = ["ALGORITHMS", "BY_NAME", "Algorithm"]
