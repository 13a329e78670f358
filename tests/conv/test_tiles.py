"""The policies of the Triton kernels: every case has one row, every row is some case's, and what they decide."""

from __future__ import annotations

from itertools import product

from yolo_rocm.conv.triton import tiles
from yolo_rocm.conv.triton.tiles import ROW_SIZES, SIZES, MeasuredSizes, block, fits, measured
from yolo_rocm.engines.triton.available import FAMILIES, FMA, MFMA, NVIDIA, WMMA

from ..tables import each_row

AMD = (FMA, WMMA, MFMA)


def test_every_case_has_a_row_and_every_row_a_case():
    cases = product(FAMILIES, (False, True), (False, True), ("gather", "weight", "rows"), (3, 64), (1, 3))
    reached = {id(measured(*case)) for case in cases}
    assert reached == {id(sizes) for _, sizes in tiles._MEASURED}


NCHW = {
    # cards, half precision, kernel, channels, width of the convolution's kernel -> as stored, on a copy
    "fp32": ((*FAMILIES,), False, "gather", 64, 3, SIZES, ()),
    "half on NVIDIA": ((NVIDIA,), True, "gather", 64, 3, ("s",), SIZES),
    "half on AMD": (AMD, True, "gather", 64, 3, ("s", "l"), SIZES),
    "grad-weight on NVIDIA": ((NVIDIA,), False, "weight", 16, 3, (), SIZES),
    "grad-weight of an image on NVIDIA": ((NVIDIA,), True, "weight", 15, 3, SIZES, SIZES),
    "grad-weight on AMD": (AMD, False, "weight", 64, 1, ("s", "l"), SIZES),
    "grad-weight on AMD, rows instead": (AMD, True, "weight", 3, 3, ("s", "l"), ()),
    "rows": ((*FAMILIES,), True, "rows", 64, 3, (), SIZES),
}


@each_row("name", NCHW)
def test_nchw(name):
    families, half, kernel, channels, width, stored, copied = NCHW[name]
    for family in families:
        assert measured(family, False, half, kernel, channels, width) == MeasuredSizes(stored, copied)


def test_tiles_that_are_mostly_padding_or_far_too_narrow_do_not_fit():
    assert [size for size in (16, 32, 64, 128) if fits(size, 16)] == [16]
    assert [size for size in (16, 32, 64, 128) if fits(size, 64)] == [16, 32, 64]
    assert [size for size in (16, 32, 64, 128) if fits(size, 65)] == [32, 64, 128]


@each_row("family, half", list(product(FAMILIES, (False, True))))
def test_every_family_has_every_size(family, half):
    found = tiles.tiles(family, half)
    assert (tuple(found.gather), tuple(found.weight), tuple(found.rows)) == (SIZES, SIZES, ROW_SIZES)
    for channels_last in (False, True):
        whole, unrolled = (block(family, channels_last, half, taps) for taps in (9, 25))
        assert whole.pixels == 4 * unrolled.pixels
        assert block(family, channels_last, half, 49) == whole
