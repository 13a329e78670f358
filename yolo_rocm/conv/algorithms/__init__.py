"""The algorithms. A new one is a new file and a line here; the order breaks ties where nothing has been measured."""

from __future__ import annotations

from ..kernels.tiles import ROW_SIZES, SIZES
from .base import Algorithm
from .columns import Columns
from .depthwise import DepthwiseBands, DepthwiseKernel, DepthwiseShift
from .fft import Fft
from .native import Aten, Vendor
from .planes import Planes
from .pointwise import Pointwise
from .shift import ShiftRows, ShiftTaps
from .strips import Strips
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
    DepthwiseBands(),
    *_ANYTHING_DIRECT,
    Planes(),
    Strips(),
    Columns(),
    ShiftRows(),
    ShiftTaps(),
    Winograd2(),
    Winograd4(),
    Fft(),
    TransposedShuffle(),
    Transposed(_ANYTHING_DIRECT),
    TritonDepthwise(),
    TritonFlat(),
    *_TILES,
    *(TritonChannelsLast(tile) for tile in _TILES),
    TritonTransposed((TritonGemm("l"),)),
    Aten(),
)
BY_NAME: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in ALGORITHMS}

__all__ = ["ALGORITHMS", "BY_NAME", "Algorithm"]
