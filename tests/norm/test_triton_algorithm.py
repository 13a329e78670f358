"""The Triton BatchNorm as an algorithm: what it supports, what is worth measuring, how channels are cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton.available import FAMILIES, NVIDIA
from yolo_rocm.engines.trust.record import record_of
from yolo_rocm.norm.problem import NormProblem
from yolo_rocm.norm.triton import algorithm as triton
from yolo_rocm.norm.triton import calls
from yolo_rocm.norm.triton import passes as triton_passes
from yolo_rocm.norm.triton.algorithm import TRITON
from yolo_rocm.norm.triton.tiles import MOST_PARTS, SIZES, Tile, channel_block, pixel_block, split, tile, width


@pytest.fixture
def card(monkeypatch, fresh):
    """An H200 that is not there."""
    monkeypatch.setattr(triton, "device_reason", lambda device: None)
    monkeypatch.setattr(triton_passes, "family", lambda device: NVIDIA)
    monkeypatch.setattr(triton_passes, "processors", lambda device: 132)
    STATE.clear()
    yield
    STATE.clear()


def norm(*shape, dtype=torch.float32, last=False):
    return NormProblem(shape, dtype, "cuda:0", last)


def test_what_is_not_supported_says_why(card, monkeypatch):
    for algorithm in TRITON:
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            assert algorithm.not_supported_reasons(norm(2, 3, 4, 4, dtype=dtype)) == []
        (why,) = algorithm.not_supported_reasons(norm(2, 3, 4, 4, dtype=torch.float64))
        assert why == "dtype torch.float64 is not float32, float16 or bfloat16"
        assert algorithm.not_supported_reasons(norm(0, 3, 4, 4)) == ["there are no values"]
        assert algorithm.not_supported_reasons(norm(2**16, 3, 2**8, 2**8))
        assert algorithm.not_supported_reasons(norm(2**16, 2**15, 1, 2))
    monkeypatch.setattr(triton, "device_reason", lambda device: "there is no GPU")
    assert TRITON[0].not_supported_reasons(norm(2, 3, 4, 4)) == ["there is no GPU"]


def test_a_quarantined_kernel_or_tile_is_left_out(card):
    problem = norm(2, 3, 4, 4)
    record_of(problem.device).quarantine("norm", TRITON[1].name, problem.dtype, "it failed")
    assert [bool(a.not_supported_reasons(problem)) for a in TRITON] == [False, True, False]
    record_of(problem.device).quarantine("norm", "batch_norm", problem.dtype, "it is wrong")
    assert all(a.not_supported_reasons(problem) == ["it is wrong"] for a in TRITON)
    assert not TRITON[0].not_supported_reasons(replace(problem, dtype=torch.float16))


def test_bound_passes_look_nothing_up(card):
    problem = norm(2, 32, 8, 8)
    for algorithm, size in zip(TRITON, SIZES, strict=True):
        own = triton_passes.passes(size, problem)
        assert algorithm.bound(problem) == (own.forward, own.activate, own.backward)


def test_what_is_worth_measuring(card):
    """Long channels are not taken whole, and sizes that come to the same are measured once."""
    names = {a.name: a for a in TRITON}

    def worth(problem):
        return {name for name, a in names.items() if a.worth_measuring(problem, "forward")}

    assert worth(norm(64, 16, 320, 320)) == {"triton_s", "triton_l"}
    assert worth(norm(8, 64, 40, 40)) >= {"triton_s", "triton_one"}
    assert worth(norm(2, 64, 10, 10)) == {"triton_s", "triton_one"}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
def test_tiles_cover_every_channel(family, size, last):
    each = tile(family, size)
    for shape in ((64, 16, 320, 320), (8, 64, 80, 80), (8, 80, 40, 40), (1, 3, 7, 9), (2, 33, 1, 1), (5, 1, 3, 1000)):
        problem = norm(*shape, last=last)
        cut = calls.cut(problem, each, 64)
        assert cut.part_tiles * cut.parts >= cut.tiles > cut.part_tiles * (cut.parts - 1)
        assert 1 <= cut.parts <= MOST_PARTS
        assert cut.block.a * cut.block.b <= each.sums
        layout = calls.Layout.of(problem)
        values = cut.tiles * cut.block.a * (1 if layout.last else cut.block.b)
        assert values >= problem.rows
        assert cut.blocks * (cut.block.b if layout.last else 1) >= problem.channels
        for call in (calls.activate(problem, each), calls.input_gradient(problem, each)):
            block = call.constants["BLOCK_A"] * call.constants["BLOCK_B"]
            assert call.grid[0] * block >= problem.rows * problem.channels
        combined = calls.combine_gradients(problem, cut, True, True)
        assert combined.constants["BLOCK_S"] >= cut.parts
        assert combined.grid[0] * combined.constants["BLOCK_C"] >= problem.channels


def test_widths_waste_little():
    assert width(400, 2048, 128) == 512
    assert width(1600, 2048, 128) == 256
    assert width(6400, 1024, 128) == 1024
    assert width(80, 64, 16) == 32
    assert width(3, 64, 16) == 4
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
    large, usual = norm(64, 256, 512, 512), norm(64, 16, 320, 320)
    each = Tile(1024, 1024, 4)
    for problem, wide in ((large, True), (usual, False)):
        cut = calls.cut(problem, each, 64)
        made = (calls.activate(problem, each), calls.partial_statistics(problem, cut, each))
        assert [call.constants["INT64"] for call in made] == [wide] * 2


def test_a_plane_of_one_pixel_is_a_row():
    assert calls.Layout.of(norm(6, 5)) == calls.Layout(6, 5, 1, True)
    assert calls.Layout.of(norm(6, 5, 3)) == calls.Layout(6, 5, 3, False)
    assert calls.Layout.of(norm(6, 5, 3, 2, last=True)) == calls.Layout(36, 5, 1, True)
