"""The tiles of the Triton BatchNorm: how channels are cut, and what is worth measuring."""

from __future__ import annotations

import pytest

from yolo_rocm.engines.triton.available import FAMILIES, NVIDIA
from yolo_rocm.norm.triton import calls
from yolo_rocm.norm.triton import passes as triton_passes
from yolo_rocm.norm.triton.algorithm import TRITON
from yolo_rocm.norm.triton.tiles import MOST_PARTS, SIZES, Tile, channel_block, pixel_block, split, tile, width

from .calls import made

pytestmark = pytest.mark.once


def norm(*shape, last=False):
    return made(shape, device="cuda:0", channels_last=last)


def test_what_is_worth_measuring(monkeypatch, fresh):
    """Long channels are not taken whole, and sizes that come to the same are measured once."""
    monkeypatch.setattr(triton_passes, "family", lambda device: NVIDIA)
    monkeypatch.setattr(triton_passes, "processors", lambda device: 132)

    def worth(*shape):
        return {a.name for a in TRITON if a.worth_measuring(norm(*shape), "forward")}

    assert worth(64, 16, 320, 320) == {"triton_s", "triton_l"}
    assert worth(8, 64, 40, 40) >= {"triton_s", "triton_one"}
    assert worth(2, 64, 10, 10) == {"triton_s", "triton_one"}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
def test_tiles_cover_every_channel(family, last):
    shapes = ((64, 16, 320, 320), (8, 64, 80, 80), (8, 80, 40, 40), (1, 3, 7, 9), (2, 33, 1, 1), (5, 1, 3, 1000))
    for size in SIZES:
        each = tile(family, size)
        for problem in (norm(*shape, last=last) for shape in shapes):
            cut, layout = calls.cut(problem, each, 64), calls.Layout.of(problem)
            assert cut.part_tiles * cut.parts >= cut.tiles > cut.part_tiles * (cut.parts - 1)
            assert 1 <= cut.parts <= MOST_PARTS
            assert cut.block.a * cut.block.b <= each.sums
            assert cut.tiles * cut.block.a * (1 if layout.last else cut.block.b) >= problem.rows
            assert cut.blocks * (cut.block.b if layout.last else 1) >= problem.channels
            for call in (calls.activate(problem, each), calls.input_gradient(problem, each)):
                block = call.constants["BLOCK_A"] * call.constants["BLOCK_B"]
                assert call.grid[0] * block >= problem.rows * problem.channels
            combined = calls.combine_gradients(problem, cut, True, True)
            assert combined.constants["BLOCK_S"] >= cut.parts
            assert combined.grid[0] * combined.constants["BLOCK_C"] >= problem.channels


def test_widths_waste_little():
    assert [width(length, 2048, 128) for length in (400, 1600)] == [512, 256]
    assert width(6400, 1024, 128) == 1024
    assert [width(length, 64, 16) for length in (80, 3)] == [32, 4]
    assert width(100, 64, 128) == 64  # never wider than a tile
    assert pixel_block(1, 102400, 2048) == (1, 2048)
    assert pixel_block(64, 400, 2048) == (4, 512)
    assert channel_block(10**6, 64, 2048) == (32, 64)
    assert channel_block(10**6, 64, 2048, whole=True) == (128, 16)


def test_parts_keep_multiprocessors_busy_and_are_long_enough():
    assert split(1, 16, 132) == (1, 1)
    assert split(4, 16, 132) == (4, 1)
    each, parts = split(10**6, 16, 132)
    assert parts * 16 >= 4 * 132
    assert each * parts >= 10**6
    assert split(10**9, 1, 10**6)[1] <= MOST_PARTS


def test_tensors_beyond_2_to_the_31_have_offsets_of_64_bits():
    each = Tile(1024, 1024, 4)
    for problem, wide in ((norm(64, 256, 512, 512), True), (norm(64, 16, 320, 320), False)):
        cut = calls.cut(problem, each, 64)
        for call in (calls.activate(problem, each), calls.partial_statistics(problem, cut, each)):
            assert call.constants["INT64"] == wide
