"""The table of convolution's algorithms: native, pure PyTorch (`gemm`), Triton, kernels in C++ (`hip`).

Nothing here chooses between them. A new one is a new file and a line below, a removed one the same: plan files that
name it are measured again. The order breaks ties where nothing has been measured.
"""

from __future__ import annotations

from .base import Algorithm
from .gemm.columns import NhwcColumns
from .gemm.depthwise import DepthwiseKernel
from .gemm.planes import Planes
from .gemm.pointwise import Pointwise
from .gemm.shift_rows import ShiftRows
from .gemm.transposed import KernelTransposed, Transposed, TransposedShuffle
from .gemm.windows import Windows
from .gemm.winograd import Winograd4
from .hip.depthwise import HipDepthwise
from .hip.few_channels import HipFewChannels
from .hip.gemm import HipGemm
from .hip.tiles import TILES
from .hip.winograd import HipWinograd
from .native import AtenConvolution, VendorConvolution
from .triton.channels_last import TritonChannelsLast
from .triton.depthwise import TritonDepthwise
from .triton.gemm import TritonFlat, TritonGemm, TritonInference, TritonRows
from .triton.tiles import INFERENCE_SIZES, ROW_SIZES, SIZES

_ANYTHING_DIRECT = (Pointwise(), Windows())
_TRITON_TILES = (*(TritonGemm(size) for size in SIZES), *(TritonRows(size) for size in ROW_SIZES))
_HIP_TILES = tuple(HipGemm(name, *pair) for name, pair in TILES.items())

ALGORITHMS: tuple[Algorithm, ...] = (
    VendorConvolution(),
    DepthwiseKernel(),
    *_ANYTHING_DIRECT,
    Planes(),
    NhwcColumns(),
    ShiftRows(),
    Winograd4(),
    TransposedShuffle(),
    Transposed(_ANYTHING_DIRECT),
    TritonDepthwise(),
    TritonFlat(),
    *_TRITON_TILES,
    *(TritonChannelsLast(tile) for tile in _TRITON_TILES),
    KernelTransposed(TritonGemm("l")),
    HipDepthwise(),
    HipFewChannels(),
    *_HIP_TILES,
    HipWinograd(),
    KernelTransposed(_HIP_TILES[-1]),
    AtenConvolution(),
)
# Of a network that only computes: no rows, which are of a gradient, but tiles for small batches.
INFERENCE_ALGORITHMS: tuple[Algorithm, ...] = (
    *(algorithm for algorithm in ALGORITHMS if "rows_" not in algorithm.name),
    *(TritonInference(size) for size in INFERENCE_SIZES),
)
BY_NAME: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in ALGORITHMS}

__all__ = ["ALGORITHMS", "BY_NAME", "INFERENCE_ALGORITHMS", "Algorithm"]
