"""The algorithms. A new one is a new file and a line here; the order breaks ties where nothing has been measured."""

from __future__ import annotations

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
from .triton_depthwise import TritonDepthwise
from .triton_gemm import TRITON_GEMMS, TritonGemm
from .triton_transposed import TritonTransposed
from .unfold import Unfold
from .windows import Windows
from .winograd import Winograd2, Winograd4

_ANYTHING_DIRECT = (Pointwise(), Unfold(), Windows())

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
    *TRITON_GEMMS,
    TritonTransposed((TritonGemm("l"),)),
    Aten(),
)
BY_NAME: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in ALGORITHMS}

__all__ = ["ALGORITHMS", "BY_NAME", "Algorithm"]
