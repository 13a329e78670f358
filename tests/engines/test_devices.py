"""With an integrated GPU as device 0 and a card as device 1, everything is asked of the one that the tensors are on."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, Operands
from yolo_rocm.conv.triton import calls
from yolo_rocm.engines import measure
from yolo_rocm.engines.triton import available, direct, launch
from yolo_rocm.engines.triton.available import FMA, WMMA
from yolo_rocm.engines.trust import checks
from yolo_rocm.engines.tuning import compile_ahead, time_candidates

from ..conv.problems import made_problem
from ..conv.triton_machines import TwoCards

CARD = "cuda:1"


@pytest.fixture
def cards(fresh, monkeypatch):
    """Kernels that note where they are compiled and launched."""
    cards = TwoCards(monkeypatch)

    class Kernel:
        params = [SimpleNamespace(do_not_specialize=False)] * 64

        def warmup(self, *arguments, grid, **options):
            cards.note("compile")
            return SimpleNamespace(n_spills=0, _init_handles=lambda: cards.note("load"))

        def __getitem__(self, grid):
            def run(*arguments, **options):
                cards.note("launch")
                return SimpleNamespace()

            return run

    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(checks, "interpreted", lambda: False)
    monkeypatch.setattr(launch, "kernel_of", lambda call: Kernel())
    monkeypatch.setattr(direct, "current_device", lambda: cards.current)
    monkeypatch.setattr(direct, "triton_version", lambda: (3, 2))  # no launch is repeated
    yield cards
    assert cards.current == 0


@pytest.mark.parametrize("name", ["triton_m", "triton_depthwise"])
def test_kernels_are_compiled_for_the_card(cards, name):
    groups = 24 if name == "triton_depthwise" else 1
    problem = made_problem((2, 24, 9, 11), 24, groups=groups, device=CARD)
    for which in PASSES:
        BY_NAME[name].prepare(problem, which)
    compile_ahead(CONVOLUTION, [problem], lambda p: [BY_NAME[name]])
    assert {what for what, _ in cards.happened} == {"compile", "load"}
    assert {number for _, number in cards.happened} == {1}
    assert cards.asked == {1}
    assert [available.family(f"cuda:{number}") for number in (0, 1)] == [FMA, WMMA]


def test_the_tuner_compiles_and_measures_on_the_card(cards, monkeypatch):
    """On tensors of the CPU that say they are on the card."""
    problem, algorithm = made_problem(device=CARD), BY_NAME["triton_m"]
    here = Operands.of(replace(problem, device="cpu"))

    def call(algorithm, problem, which, operands, budget):
        return lambda: (cards.note("run", problem.device), torch.ones(3))[1]

    monkeypatch.setattr(CONVOLUTION, "call", call)
    rows = time_candidates(CONVOLUTION, problem, "forward", [algorithm], here, 1 << 40)
    assert [row.algorithm for row in rows] == ["triton_m"]
    assert {"compile", "record", "sleep", "synchronize", "run"} <= {what for what, _ in cards.happened}
    assert {number for _, number in cards.happened} == {1}


@pytest.mark.parametrize("head_start", [True, False])
def test_events_and_sleeps_are_of_the_card(cards, head_start):
    assert measure.timed(lambda: cards.note("call"), torch.device(CARD), 2, head_start=head_start)[0] > 0
    assert ("call", 1) in cards.happened
    assert ("record", 1) in cards.happened
    assert (("sleep", 1) in cards.happened) == head_start
    assert {number for _, number in cards.happened} == {1}


@pytest.mark.parametrize("number", [0, 1])
def test_kernels_are_launched_where_their_tensors_are(cards, number):
    tensor = SimpleNamespace(get_device=lambda: number, data_ptr=lambda: 32)
    launch.launch("key", lambda: calls.transpose((2, 24, 9, 11)), (tensor, tensor))
    assert cards.happened == [("launch", number)]
