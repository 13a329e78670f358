"""The triton engine without Triton: what is tried, and every reason why it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from yolo_rocm.bench.layers import model_layers
from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME, INFERENCE_ALGORITHMS
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import Planner
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton import common as triton_common
from yolo_rocm.conv.triton import depthwise as triton_depthwise
from yolo_rocm.conv.triton import gemm as triton_gemm
from yolo_rocm.engines import devices
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.names import single_engines
from yolo_rocm.engines.triton import available
from yolo_rocm.engines.triton.available import FAMILIES, FMA, MFMA, NVIDIA, WMMA
from yolo_rocm.engines.trust import checks
from yolo_rocm.errors import ConfigError

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


def layers_of(model: str, dtype: torch.dtype, channels_last: bool) -> list[ConvProblem]:
    """Return the layers of a model at batch 64 and 640 pixels, from those at 64 pixels."""
    found = [layer.problem for layer in model_layers(model, 64, 64, dtype, "cuda:0", channels_last)]
    return [replace(p, input_shape=(*p.input_shape[:2], *(10 * s for s in p.input_size))) for p in found]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("model", ["yolov8n.yaml", "yolo11n.yaml"])
def test_few_candidates_for_every_layer_and_pass(served, model, family):
    served(family)
    counts = {}
    layers = layers_of(model, torch.float32, False)
    assert len(layers) > 20
    for dtype in (torch.float32, torch.float16):
        for problem in (replace(p, dtype=dtype, channels_last=last) for p in layers for last in (False, True)):
            serving = [a for a in TRITON if not a.not_supported_reasons(problem)]
            for which in PASSES:
                names = [a.name for a in serving if a.worth_measuring(problem, which)]
                assert names, (which, str(problem))
                counts[which, str(problem)] = names
                if problem.groups == problem.in_channels:
                    assert names == ["triton_depthwise"]
    assert not {key: names for key, names in counts.items() if len(names) > 7}


def test_nothing_much_larger_than_the_layer_is_tried(served):
    served(NVIDIA)
    narrow = conv(outs=16)
    assert not BY_NAME["triton_xl"].worth_measuring(narrow, "forward")
    assert not BY_NAME["triton_s"].worth_measuring(conv(outs=256), "forward")
    assert not BY_NAME["triton_rows_s"].worth_measuring(narrow, "forward")
    assert BY_NAME["triton_flat"].worth_measuring(conv((2, 3, 9, 11)), "forward")
    assert not BY_NAME["triton_flat"].worth_measuring(conv((2, 3, 9, 11)), "grad_weight")


def test_tiles_of_inference_are_no_deeper_than_the_layer_has_channels(served):
    served(NVIDIA)
    (deep,) = (a for a in INFERENCE_ALGORITHMS if a.name == "triton_128x128")
    for channels, worth in ((24, False), (64, True)):
        problem = replace(conv((2, channels, 9, 11), outs=128), dtype=torch.float16)
        assert deep.worth_measuring(problem, "forward") == worth


# Why it is not: every reason by its name.


def test_triton_is_not_installed(fresh, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    monkeypatch.setattr(available, "find_spec", lambda name: None)
    assert "triton_l: Triton is not installed\n" in refusal(conv())
    STATE.clear()
    monkeypatch.setattr(available, "find_spec", lambda name: object())
    monkeypatch.setattr(available, "_DISTRIBUTIONS", ("nobody-wrote-this",))
    assert available.missing_reason() == "Triton is not installed"


def test_triton_is_too_old(fresh, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    monkeypatch.setattr(available, "find_spec", lambda name: object())
    monkeypatch.setattr(available, "triton_version", lambda: (2, 1))
    assert "Triton 2.1 is older than 3.0" in refusal(conv())


def test_torch_is_too_old(fresh, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "1.13.1+rocm5.2")
    monkeypatch.setattr(available, "find_spec", lambda name: pytest.fail("looked for Triton"))
    assert "torch 1.13.1+rocm5.2 is older than 2.0" in refusal(conv())


def test_there_is_no_gpu(fresh, monkeypatch):
    monkeypatch.setattr(available, "missing_reason", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "there is no GPU" in refusal(conv())
    assert "Triton has no kernels for cpu" in refusal(conv(device="cpu"))


def test_cards_that_triton_does_not_know(fresh, monkeypatch):
    card(monkeypatch, gfx="gfx906")
    assert "Triton does not compile for gfx906" in refusal(conv())
    card(monkeypatch, capability=(6, 1))
    assert "Triton does not compile for compute capability (6, 1)" in refusal(conv(device="cuda:1"))


@pytest.mark.parametrize(
    ("gfx", "family"),
    [
        ("gfx1010", FMA), ("gfx1012", FMA), ("gfx1030", FMA), ("gfx1036", FMA), ("gfx1100", WMMA), ("gfx1151", WMMA),
        ("gfx1200", WMMA), ("gfx1201", WMMA), ("gfx908", MFMA), ("gfx90a", MFMA), ("gfx942", MFMA), ("gfx950", MFMA),
        (None, NVIDIA),
    ],
)  # fmt: skip
def test_cards_that_triton_knows(fresh, monkeypatch, gfx, family):
    card(monkeypatch, gfx=gfx)
    assert available.device_reason("cuda:0") is None
    assert available.family("cuda:0") == family
    assert devices.processors("cuda:0") == 60
    assert triton_common.dot(conv()).upcast == (family == FMA)


@each_row("gfx", ["gfx803", "gfx900", "gfx906", "gfx1100x", "unknown", ""])
def test_no_family_for_the_others(gfx):
    assert available.amd_family(gfx) is None


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


def test_engines_may_be_joined(fresh, monkeypatch):
    assert single_engines("gemm+triton") == ["gemm", "triton"]
    assert single_engines("triton+gemm+triton") == ["triton", "gemm"]
    problem = conv(device="cpu")
    planner = Planner("gemm+triton", remember=False)
    assert {a.engine for a in planner.candidates(problem)} == {"gemm"}  # nothing of Triton serves a CPU
    assert planner.plan(problem).engine == "gemm"
    monkeypatch.setattr(triton_common, "device_reason", lambda device: None)
    monkeypatch.setattr(checks, "check", lambda *args: None)
    assert {a.engine for a in Planner("gemm+triton", remember=False).candidates(problem)} == {"gemm", "triton"}
    assert {a.engine for a in Planner("triton", remember=False).candidates(problem)} == {"triton"}
    assert {a.engine for a in Planner("auto", remember=False).candidates(problem)} == {"gemm", "triton", "aten"}


@pytest.mark.parametrize("engine", ["gemm+trition", "gemm+", "+", "gemm,triton"])
def test_engines_that_cannot_be_joined(engine):
    with pytest.raises(ConfigError, match=r"unknown engine .*Allowed: auto, vendor, aten, gemm, triton"):
        Planner(engine)
