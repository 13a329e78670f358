"""The policies of the Triton kernels, as tables: tiles by family of GPUs, split-K, and what is worth a measurement.

NVIDIA's tiles come from a sweep over the layers of yolov8n, yolo11n and yolo26n at batch 64 on an H200: all tiles that
were tried and left out would gain at most 2 % of a pass together. Those of AMD families were compiled and executed in
emulation, never timed: none of them spills vector registers (`tools/emulate_kernels.py`), and the accumulators a thread
holds stay near those of the H200's winners.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ...engines.triton.available import FMA, MFMA, NVIDIA, WMMA

SIZES: Final = ("s", "m", "l", "xl")
ROW_SIZES: Final = SIZES[:3]
# Below this many input channels a step of the reduction over them would be mostly padding.
FEW_CHANNELS: Final = 16


class SplitK(NamedTuple):
    """How the sum over pixels of a grad-weight is split over programs.

    Attributes:
        programs: Programs for each multiprocessor, of all splits together.
        steps: Steps of the tile that a program adds up at least: below, writing its partial sum costs more.
    """

    programs: int
    steps: int


# A step of the depthwise kernel has all taps in it, and its partial sums are small.
GEMM_SPLIT: Final = SplitK(programs=8, steps=8)
DEPTHWISE_SPLIT: Final = {"nchw": SplitK(programs=16, steps=2), "nhwc": SplitK(programs=8, steps=2)}


@dataclass(frozen=True)
class Tile:
    """Sizes of a GEMM's tile, and how it is spread over a multiprocessor.

    Attributes:
        m: Pixels (output channels in grad-weight).
        n: Channels (taps x input channels in grad-weight).
        k: Reduction of one step: channels (pixels in grad-weight).
        warps: Warps, or wavefronts, of a program.
        stages: Steps whose loads are in flight at once.
        rectangles: Whether the pixels of a step of grad-weight may be a rectangle: see `steps`.
    """

    m: int
    n: int
    k: int
    warps: int = 4
    stages: int = 1
    rectangles: bool = False

    def __str__(self) -> str:
        """Return the sizes, as in a table."""
        return f"{self.m}x{self.n}x{self.k}, {self.warps} warps, {self.stages} stages"


@dataclass(frozen=True)
class DepthwiseBlock:
    """Pixels and channels of a depthwise tile: of forward and grad-input, and of grad-weight.

    Attributes:
        pixels: Of forward and grad-input; so are `channels` and `warps`.
        weight_pixels: Of a step of grad-weight; so are `weight_channels` and `weight_warps`.
    """

    pixels: int
    channels: int
    warps: int
    weight_pixels: int
    weight_channels: int
    weight_warps: int

    def __str__(self) -> str:
        """Return the sizes, as in a table."""
        weight = f"weight {self.weight_pixels}x{self.weight_channels}, {self.weight_warps} warps"
        return f"{self.pixels}x{self.channels}, {self.warps} warps, {weight}"


@dataclass(frozen=True)
class Tiles:
    """The tiles of one family and precision, by the size in an algorithm's name.

    Attributes:
        gather: Of forward and grad-input.
        weight: Of grad-weight.
        rows: Of grad-weight by rows of three taps.
        flat: Of forward for few input channels.
    """

    gather: dict[str, Tile]
    weight: dict[str, Tile]
    rows: dict[str, Tile]
    flat: Tile


def _tiles(
    gather: tuple[Tile, ...], weight: tuple[Tile, ...], rows: tuple[Tile, ...], flat: Tile, rectangles: bool = True
) -> Tiles:
    """Name tiles that are given from the smallest size to the largest; those of grad-weight take rectangles or not."""
    weight, rows = (tuple(replace(tile, rectangles=rectangles) for tile in given) for given in (weight, rows))
    return Tiles(
        dict(zip(SIZES, gather, strict=True)),
        dict(zip(SIZES, weight, strict=True)),
        dict(zip(ROW_SIZES, rows, strict=True)),
        flat,
    )


# Of units that multiply and add single numbers.
_FMA_TILES: Final = _tiles(
    (Tile(128, 16, 16), Tile(64, 32, 16), Tile(64, 64, 16, 8), Tile(128, 64, 8, 8)),
    (Tile(16, 32, 32), Tile(32, 32, 16), Tile(64, 32, 16), Tile(64, 64, 16, 8)),
    (Tile(16, 16, 32), Tile(32, 32, 16), Tile(32, 32, 16, 8)),
    Tile(128, 16, 16),
)
# family -> (fp32, half precision)
_TABLE: Final = {
    NVIDIA: (
        _tiles(
            (Tile(256, 16, 16, 4, 3), Tile(128, 32, 16, 4, 3), Tile(64, 64, 16, 4, 3), Tile(128, 64, 16, 4, 3)),
            (Tile(16, 32, 64, 4, 3), Tile(16, 64, 32, 4, 3), Tile(32, 32, 32, 4, 3), Tile(64, 64, 16, 4, 3)),
            (Tile(16, 16, 64, 4, 3), Tile(32, 32, 16, 2, 3), Tile(32, 32, 32, 4, 3)),
            Tile(256, 16, 32, 4, 2),
            rectangles=False,
        ),
        _tiles(
            (Tile(256, 16, 16, 4, 4), Tile(128, 32, 32, 4, 3), Tile(128, 64, 32, 4, 3), Tile(128, 128, 32, 4, 4)),
            (Tile(16, 32, 128, 4, 3), Tile(32, 64, 64, 4, 3), Tile(64, 64, 64, 4, 3), Tile(128, 128, 32, 8, 3)),
            (Tile(16, 16, 128, 4, 3), Tile(32, 32, 64, 4, 3), Tile(64, 64, 64, 4, 3)),
            Tile(256, 16, 32, 4, 2),
            rectangles=False,
        ),
    ),
    FMA: (_FMA_TILES, _FMA_TILES),  # no matrix units: half precision is widened before it is multiplied
    WMMA: (
        _FMA_TILES,
        _tiles(
            (Tile(128, 16, 32), Tile(128, 32, 32), Tile(64, 64, 32), Tile(128, 64, 32, 8)),
            (Tile(16, 32, 64), Tile(32, 64, 32), Tile(64, 64, 32), Tile(128, 64, 32, 8)),
            (Tile(16, 16, 64), Tile(32, 32, 32), Tile(64, 32, 32)),
            Tile(128, 16, 32),
        ),
    ),
    MFMA: (
        _tiles(
            (Tile(256, 16, 16, 4, 2), Tile(128, 32, 16, 4, 2), Tile(64, 64, 16, 4, 2), Tile(128, 64, 16, 4, 2)),
            (Tile(16, 64, 32, 4, 2), Tile(32, 32, 32, 4, 2), Tile(64, 64, 16, 4, 2), Tile(128, 64, 16, 4, 2)),
            (Tile(16, 16, 64, 4, 2), Tile(32, 32, 32, 4, 2), Tile(64, 64, 16, 4, 2)),
            Tile(256, 16, 32, 4, 2),
        ),
        _tiles(
            (Tile(256, 16, 32, 4, 2), Tile(128, 32, 32, 4, 2), Tile(128, 64, 32, 4, 2), Tile(128, 128, 32, 4, 2)),
            (Tile(16, 32, 128, 4, 2), Tile(32, 64, 64, 4, 2), Tile(64, 64, 32, 4, 2), Tile(128, 128, 32, 8, 2)),
            (Tile(16, 16, 64, 4, 2), Tile(32, 32, 64, 4, 2), Tile(64, 64, 32, 4, 2)),
            Tile(256, 16, 32, 4, 2),
        ),
    ),
}


def tiles(family: str, half: bool) -> Tiles:
    """Return the tiles of a family, for fp32 or for half precision."""
    return _TABLE[family][half]


# Forward passes of inference have these too. With a batch of one, the tiles of a training are too few to fill a card;
# with many channels, steps of twice the channels are half as many.
INFERENCE_SIZES: Final = ("16x32", "32x32", "32x64", "64x32", "64x64", "128x32", "128x64", "64x128", "128x128")
FLAT: Final = "flat"  # of layers with few input channels, where it is another than a training's
_SMALL_FMA: Final = {"32x32": Tile(32, 32, 16)}
# With a bias the training's tile spills on gfx1030, gfx1100 and gfx1151 in NCHW (compiled).
_FMA_FP32: Final = {**_SMALL_FMA, FLAT: Tile(128, 16, 32)}
_INFERENCE: Final[dict[str, tuple[dict[str, Tile], dict[str, Tile]]]] = {
    NVIDIA: (
        {"32x32": Tile(32, 32, 32, 4, 3), "32x64": Tile(32, 64, 16, 4, 3)},
        {
            "16x32": Tile(16, 32, 64, 2, 4),
            "32x32": Tile(32, 32, 64, 4, 4),
            "32x64": Tile(32, 64, 64, 4, 4),
            "64x32": Tile(64, 32, 64, 4, 4),
            "64x64": Tile(64, 64, 64, 4, 4),
            "128x32": Tile(128, 32, 64, 4, 3),
            "128x64": Tile(128, 64, 64, 4, 3),
            "64x128": Tile(64, 128, 64, 4, 3),
            "128x128": Tile(128, 128, 64, 8, 3),
        },
    ),
    FMA: (_FMA_FP32, _SMALL_FMA),
    WMMA: (_FMA_FP32, {"32x32": Tile(32, 32, 32), "32x64": Tile(32, 64, 32)}),
    MFMA: (
        {"32x32": Tile(32, 32, 16, 4, 2)},
        {"32x32": Tile(32, 32, 32, 4, 2), "32x64": Tile(32, 64, 32, 4, 2), "64x64": Tile(64, 64, 64, 4, 2)},
    ),
}


def inference_tile(family: str, half: bool, size: str) -> Tile | None:
    """Return a tile of inference alone, for fp32 or for half precision; None where a family has no such tile."""
    return _INFERENCE[family][half].get(size)


# Depthwise kernels of this many taps are unrolled by LLVM with the loads of all taps in flight at once: with a whole
# tile of pixels they need more registers than there are (compiled for gfx1030; 7 x 7 stays a loop).
_UNROLLED: Final = range(10, 37)
# NVIDIA's come from a sweep over the depthwise layers of yolo11n at batch 64 on an H200: several channels in a thread
# share the work of finding its pixels. With as much in a lane, AMD's spill: theirs hold about half of it, were
# compiled, never timed, and are the same for all families: the kernel moves bytes.
_AMD: Final = "amd"
_BLOCKS: Final = {
    # cards, layout, half precision
    (NVIDIA, "nchw", False): DepthwiseBlock(128, 8, 2, 128, 4, 1),
    (NVIDIA, "nchw", True): DepthwiseBlock(256, 8, 2, 128, 4, 1),
    (NVIDIA, "nhwc", False): DepthwiseBlock(32, 32, 2, 64, 32, 1),
    (NVIDIA, "nhwc", True): DepthwiseBlock(32, 64, 2, 32, 32, 1),
    (_AMD, "nchw", False): DepthwiseBlock(256, 4, 4, 128, 4, 2),
    (_AMD, "nchw", True): DepthwiseBlock(256, 4, 4, 128, 4, 2),
    (_AMD, "nhwc", False): DepthwiseBlock(32, 32, 4, 32, 32, 2),
    (_AMD, "nhwc", True): DepthwiseBlock(64, 32, 4, 32, 32, 2),
}


def block(family: str, channels_last: bool, half: bool, taps: int = 9) -> DepthwiseBlock:
    """Return the depthwise tile of a family."""
    found = _BLOCKS[NVIDIA if family == NVIDIA else _AMD, layout_name(channels_last), half]
    return replace(found, pixels=found.pixels // 4) if taps in _UNROLLED else found


def layout_name(channels_last: bool) -> str:
    """Return a layout as the tables name it."""
    return "nhwc" if channels_last else "nchw"


class MeasuredSizes(NamedTuple):
    """Sizes of tiles that are worth a measurement, before those that do not fit the layer's channels are dropped.

    Attributes:
        stored: Reading tensors in the layout they have.
        copied: Reading channels_last copies of NCHW tensors.
    """

    stored: tuple[str, ...]
    copied: tuple[str, ...]


# On the H200 a channels_last copy of NCHW tensors has paid for half precision, and for grad-weight in every precision:
# the copy included, it took a third of the time. Nobody has timed either on AMD: there both are measured, as stored in
# every other size, and grad-weight of kernels three wide by rows of taps alone where it is copied.
_ANY, _ALL, _OTHER, _NONE = None, SIZES, SIZES[::2], ()
_MEASURED: Final = (
    # layout, cards,  dtype,  kernel,   layer             -> as stored, on a copy; the first row that applies counts
    (("nhwc", _ANY,   _ANY,   _ANY,     _ANY),           MeasuredSizes(_ALL, _NONE)),
    (("nchw", _ANY,   "fp32", "gather", _ANY),           MeasuredSizes(_ALL, _NONE)),
    (("nchw", NVIDIA, "half", "gather", _ANY),           MeasuredSizes(SIZES[:1], _ALL)),
    (("nchw", _AMD,   "half", "gather", _ANY),           MeasuredSizes(_OTHER, _ALL)),
    (("nchw", NVIDIA, _ANY,   "weight", "few channels"), MeasuredSizes(_ALL, _ALL)),
    (("nchw", NVIDIA, _ANY,   "weight", _ANY),           MeasuredSizes(_NONE, _ALL)),
    (("nchw", _AMD,   _ANY,   "weight", "3 wide"),       MeasuredSizes(_OTHER, _NONE)),
    (("nchw", _AMD,   _ANY,   "weight", _ANY),           MeasuredSizes(_OTHER, _ALL)),
    (("nchw", _ANY,   _ANY,   "rows",   _ANY),           MeasuredSizes(_NONE, _ALL)),
)  # fmt: skip


def measured(family: str, channels_last: bool, half: bool, kernel: str, channels: int, width: int) -> MeasuredSizes:
    """Return the sizes that are worth a measurement.

    Args:
        family: Of the device.
        channels_last: Layout of the tensors.
        half: Whether they are in half precision.
        kernel: `gather`, `weight` or `rows`, as in `Tiles`.
        channels: Input channels of a group.
        width: Of the convolution's kernel.
    """
    layers = {"few channels": channels < FEW_CHANNELS, "3 wide": width == 3}
    case = (
        {layout_name(channels_last)},
        {NVIDIA if family == NVIDIA else _AMD},
        {"half" if half else "fp32"},
        {kernel},
        {layer for layer, applies in layers.items() if applies},
    )
    return next(
        sizes
        for row, sizes in _MEASURED
        if all(wanted is _ANY or wanted in own for wanted, own in zip(row, case, strict=True))
    )


def fits(size: int, channels: int) -> bool:
    """Return whether a tile of `size` channels is neither mostly padding nor far too narrow for a layer."""
    return (size <= 16 or size < 2 * channels) and (size >= 32 or channels <= 4 * size)
