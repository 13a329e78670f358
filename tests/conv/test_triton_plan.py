"""The triton engine without Triton: what is tried, and every reason why it is not."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

from yolo_rocm.bench.layers import model_layers
from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME, INFERENCE_ALGORITHMS
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton import common as triton_common
from yolo_rocm.conv.triton import depthwise as triton_depthwise
from yolo_rocm.conv.triton import gemm as triton_gemm
from yolo_rocm.engines import devices
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton import available
from yolo_rocm.engines.triton.available import FAMILIES, FMA, MFMA, NVIDIA, WMMA

from ..tables import each_row
from .problems import made_problem as conv
from .triton_machines import card, refusal

TRITON = [algorithm for algorithm in ALGORITHMS if algorithm.engine == "triton"]


# What is tried: few candidates, and some for every layer.


@pytest.fixture
def served(monkeypatch):
    """Triton serves every device; the family is what is asked for."""

    def by(family: str) -> None:
        monkeypatch.setattr(triton_common, "device_reason", lambda device: None)
        for module in (triton_common, triton_gemm):
            monkeypatch.setattr(module, "family", lambda device: family)
        for module in (triton_gemm, triton_depthwise):
            monkeypatch.setattr(module, "processors", lambda device: 132)

    return by


@each_row("family, last", list(product(FAMILIES, (False, True))))
def test_few_candidates_for_every_layer_and_pass(served, family, last):
    served(family)
    layers = model_layers("yolo11n.yaml", 64, 64, torch.float32, "cuda:0", last)
    small = (layer.problem for layer in layers)
    problems = [replace(p, input_shape=(*p.input_shape[:2], *(10 * size for size in p.input_size))) for p in small]
    assert len(problems) > 20
    for dtype, problem, which in product((torch.float32, torch.float16), problems, PASSES):
        problem = replace(problem, dtype=dtype)
        serving = [a for a in TRITON if not a.not_supported_reasons(problem)]
        names = [a.name for a in serving if a.worth_measuring(problem, which)]
        assert 0 < len(names) <= 7, (which, str(problem))
        if problem.groups == problem.in_channels:
            assert names == ["triton_depthwise"]


def test_nothing_much_larger_than_the_layer_is_tried(served):
    served(NVIDIA)
    narrow, image = conv(outs=16), conv((2, 3, 9, 11))
    for name, problem, which, worth in (
        ("triton_xl", narrow, "forward", False),
        ("triton_s", conv(outs=256), "forward", False),
        ("triton_rows_s", narrow, "forward", False),
        ("triton_flat", image, "forward", True),
        ("triton_flat", image, "grad_weight", False),
    ):
        assert BY_NAME[name].worth_measuring(problem, which) == worth, (name, which)


def test_tiles_of_inference_are_no_deeper_than_the_layer_has_channels(served):
    served(NVIDIA)
    (deep,) = (a for a in INFERENCE_ALGORITHMS if a.name == "triton_128x128")
    for channels, worth in ((24, False), (64, True)):
        problem = replace(conv((2, channels, 9, 11), outs=128), dtype=torch.float16)
        assert deep.worth_measuring(problem, "forward") == worth


# Why it is not: every reason by its name.


def test_there_is_no_triton(fresh, monkeypatch):
    for torch_version, triton, why in (
        ("2.10.0", None, "Triton is not installed"),
        ("2.10.0", (2, 1), "Triton 2.1 is older than 3.0"),
        ("1.13.1+rocm5.2", (3, 6), "torch 1.13.1+rocm5.2 is older than 2.0"),
    ):
        STATE.clear()
        monkeypatch.setattr(torch, "__version__", torch_version)
        monkeypatch.setattr(available, "find_spec", lambda name, triton=triton: triton)
        monkeypatch.setattr(available, "triton_version", lambda triton=triton: triton)
        assert f"triton_l: {why}" in refusal(conv())


def test_there_is_no_card_for_it(fresh, monkeypatch):
    monkeypatch.setattr(available, "missing_reason", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "there is no GPU" in refusal(conv())
    assert "Triton has no kernels for cpu" in refusal(conv(device="cpu"))
    card(monkeypatch, gfx="gfx906")
    STATE.clear()
    assert "Triton does not compile for gfx906" in refusal(conv())
    card(monkeypatch, capability=(6, 1))
    assert "Triton does not compile for compute capability (6, 1)" in refusal(conv(device="cuda:1"))


CARDS = {
    FMA: ("gfx1010", "gfx1012", "gfx1030", "gfx1036"),
    WMMA: ("gfx1100", "gfx1151", "gfx1200", "gfx1201"),
    MFMA: ("gfx908", "gfx90a", "gfx942", "gfx950"),
    NVIDIA: (None,),
}


def test_cards_that_triton_knows(fresh, monkeypatch):
    for family, gfx in ((family, gfx) for family, cards in CARDS.items() for gfx in cards):
        STATE.clear()
        card(monkeypatch, gfx=gfx)
        assert available.device_reason("cuda:0") is None
        assert (available.family("cuda:0"), devices.processors("cuda:0")) == (family, 60), gfx
        assert triton_common.dot(conv()).upcast == (family == FMA)
    others = ("gfx803", "gfx900", "gfx906", "gfx1100x", "unknown", "")
    assert {available.amd_family(gfx) for gfx in others} == {None}


def test_what_the_kernels_do_not_serve(fresh, monkeypatch):
    card(monkeypatch)
    assert "dtype torch.float64 is not float32, float16 or bfloat16" in refusal(replace(conv(), dtype=torch.float64))
    solid = ConvProblem(
        (1, 4, 5, 5, 5), (4, 4, 3, 3, 3), *[(1,) * 3] * 3, (0,) * 3, 1, False, torch.float32, "cuda:0", False
    )
    text = refusal(solid)
    assert "triton_l: 3 spatial dimensions, not 2" in text
    assert "triton_transposed: not transposed" in text
    assert "triton_transposed: 3 spatial dimensions, not 2" in refusal(replace(solid, transposed=True))
    assert "2**31 or more" in refusal(conv((1, 8, 20000, 20000)))
    many = conv((1, 65536, 2, 2), 65536, groups=65536)
    assert "65536 groups are more than a launch takes" in refusal(many)


# Several engines.
