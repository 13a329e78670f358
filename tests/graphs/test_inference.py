"""Networks that only compute: counted, measured, recorded and replayed, on a CPU with a stand-in for device graphs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from yolo_rocm.graphs.inference import CALLS_BEFORE_MEASURING, CALLS_BEFORE_RECORDING, InferenceNetworks

from .trained import StandIn, cpu_has_graphs

BEFORE = CALLS_BEFORE_RECORDING


class Network(nn.Module):
    """A convolution, a scale that is an attribute, and anchors that a pass keeps for a shape, as heads do."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.scale, self.anchors, self.shape = 2.0, torch.zeros(0), None
        self.calls, self.asks, self.draws = 0, False, False

    def compute(self, x):
        """Return two outputs."""
        if StandIn.is_recording and self.asks:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        type(self).passes += not (StandIn.is_recording or StandIn.is_replaying)
        if self.draws:
            torch.rand(1)
        if self.shape != x.shape:
            self.shape, self.anchors = x.shape, torch.arange(float(x.shape[-1] - 2))
        y = self.conv(x) * self.scale
        return y + self.anchors, {"raw": y}


Network.passes = 0


@pytest.fixture(autouse=True)
def begin_anew(monkeypatch):
    cpu_has_graphs(monkeypatch, StandIn)
    Network.passes = 0


class Computed:
    """A model and what computes it."""

    def __init__(self, graph="on", layout="auto"):
        torch.manual_seed(0)
        self.model, self.said, self.tuned = Network().eval(), [], []
        self.networks = InferenceNetworks(graph, layout, lambda: self.tuned.append(1), self.said.append)

    def __call__(self, x):
        """Compute."""
        with torch.no_grad():
            return self.networks(self.model, self.model.compute, x)

    def check(self, x):
        """Compute, and compare with the model itself."""
        found, raw = self(x)
        with torch.no_grad():
            wanted, wanted_raw = copy.deepcopy(self.model).compute(x)
        assert torch.allclose(found, wanted, atol=2e-5)  # the layouts round differently
        assert torch.allclose(raw["raw"], wanted_raw["raw"], atol=2e-5)
        return found


def image(seed=0, size=12):
    return torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(seed))


def test_a_shape_is_recorded_after_its_first_calls_and_replayed():
    given = Computed()
    for number in range(BEFORE + 1):
        given.check(image(number))
        assert given.networks.recorded == (number == BEFORE)
    assert given.tuned == [1]
    assert len(given.said) == 1
    assert given.said[0].startswith("inference of 1x3x12x12 takes ")
    assert " ms recorded in " in given.said[0]
    passes, first = Network.passes, given(image(1))[0]
    kept = first.clone()
    given(image(2))
    assert Network.passes == passes
    assert torch.equal(first, kept)  # what is handed out is not overwritten by the next call


def test_algorithms_are_measured_after_more_calls_than_a_picture_makes():
    given = Computed("auto")
    for number in range(CALLS_BEFORE_MEASURING):
        given(image(number))
    assert given.tuned == []
    given(image())
    assert given.tuned == [1]


def test_a_network_that_counts_its_passes_is_not_recorded():
    given = Computed()
    compute, calls = given.model.compute, []

    def counted(x):
        calls.append(1)
        given.model.calls += 1
        return compute(x)

    for number in range(BEFORE + 2):
        given.networks(given.model, counted, image(number))
    assert given.networks.recorded == 0
    assert given.said[0].endswith("each pass changes Network.calls, which a recorded one would not")
    assert given.model.calls == BEFORE + 2 < len(calls)


@pytest.mark.parametrize("change", ["attribute", "equal tensor", "in place", "other memory", "module", "training"])
def test_a_model_that_is_changed_is_computed_as_it_is_then(change):
    given = Computed()
    for number in range(BEFORE + 2):
        given.check(image(number))
    model = given.model
    if change == "attribute":
        model.scale = 3.0
    elif change == "equal tensor":  # a recorded pass reads the one that was there
        model.anchors = model.anchors.clone()
    elif change == "in place":
        with torch.no_grad():
            model.conv.weight.mul_(2)
    elif change == "other memory":
        model.conv.weight.data = model.conv.weight.data * 2
    elif change == "module":
        model.conv = nn.Conv2d(3, 8, 3)
    else:
        model.conv.train()
    given.check(image(7))
    assert given.networks.recorded == 0
    for number in range(BEFORE + 2):
        given.check(image(number))
    assert given.networks.recorded == 1


def test_a_shape_that_is_recorded_after_a_change_takes_no_older_one_with_it():
    given = Computed()
    for number in range(BEFORE + 2):
        given.check(image(number, 12))
    for number in range(BEFORE):
        given.check(image(number, 14))
    assert given.networks.recorded == 1
    given.model.conv.weight = nn.Parameter(given.model.conv.weight.detach() * 0.5)
    given.check(image(7, 14))  # is recorded
    assert given.networks.recorded == 1
    given.check(image(7, 12))


def test_hooks_see_each_call_and_several_shapes_are_recorded():
    given, seen = Computed(), []
    for number in range(BEFORE + 2):
        given(image(number, 10))
    hook = given.model.conv.register_forward_hook(lambda *_: seen.append(1))
    given.check(image(3, 10))
    assert seen
    hook.remove()
    passes = Network.passes
    given(image(4, 10))
    assert Network.passes == passes  # replayed again
    for size in range(11, 16):
        for number in range(BEFORE + 2):
            given.check(image(number, size))
    assert given.networks.recorded == len(given.said) == 4


@pytest.mark.parametrize(("how", "said"), [("asks", "not permitted"), ("draws", "draws random numbers")])
def test_what_cannot_be_recorded_is_computed_and_said_once(how, said):
    given = Computed()
    setattr(given.model, how, True)
    for number in range(BEFORE + 3):
        given.check(image(number))
    assert given.networks.recorded == 0
    assert len(given.said) == 1
    assert said in given.said[0]
    assert "more" not in given.said[0]


def test_graph_off_measures_the_layout_alone():
    given = Computed("off", "channels_last")
    for number in range(CALLS_BEFORE_MEASURING + 2):
        assert (given.check(image(number)).stride()[1] == 1) == (number >= CALLS_BEFORE_MEASURING)
    assert given.networks.recorded == 0
    assert given.said[0].endswith("in channels_last, not recorded: rocm.predict.graph=off")
