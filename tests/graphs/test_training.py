"""Recorded passes compute what they compute otherwise, to the last bit: on a GPU, and on a CPU with a stand-in."""

from __future__ import annotations

import gc
import itertools

import pytest
import torch

from yolo_rocm.errors import DeviceLostError
from yolo_rocm.graphs import network, recorder

from .trained import Network, Noting, StandIn, batches, cpu_has_graphs, loss_of, made, recorded, same, train

DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    """Where; a CPU gets a stand-in, and a vendor library adds up in one order."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    if request.param == "cpu":
        cpu_has_graphs(monkeypatch, StandIn)
    return torch.device(request.param)


@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "amp"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_training_is_the_same(device, amp, accumulate):
    if amp and device.type == "cpu":
        pytest.skip("no GPU")
    plain, model = made(device), made(device)
    graphs, said = recorded(model)
    kept = []  # every step's loss, so that autograd's nodes of the first stream stay alive
    expected = train(plain, batches(device, 9), amp, accumulate)
    assert train(model, batches(device, 9), amp, accumulate, kept=kept) == expected
    assert graphs.recorded == 1
    assert "device graph on for 4x3x32x32" in said[0]
    assert same(plain, model)
    eager = Network.eager
    train(model, batches(device, 2), amp, kept=kept)
    assert Network.eager == eager  # replayed


def test_a_second_pass_before_the_first_one_is_over_is_not_recorded(device):
    plain, model = made(device), made(device)
    graphs, _ = recorded(model)
    x, y = batches(device, 2)
    for each in (plain, model):
        train(each, batches(device, 3))
        each(x)  # dropped, which leaves the next one alone
        train(each, batches(device, 3))
        (loss_of(each(x)) + 2 * loss_of(each(y))).backward()
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert same(plain, model)
    assert graphs.recorded == 1


def test_backward_twice_is_refused_in_words(device):
    model = made(device)
    recorded(model)
    train(model, batches(device, 3))
    loss = loss_of(model(batches(device, 1)[0]))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"step\.graph: off"):
        loss.backward()


@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "amp"])
def test_a_loss_that_uses_other_outputs_than_before(device, amp):
    if amp and device.type == "cpu":
        pytest.skip("no GPU")
    plain, model = made(device), made(device)
    graphs, said = recorded(model)
    begins, ends = [0.0] * 4 + [0.5] * 5, [0.5] * 4 + [0.0] * 5
    for weights, words in ((begins, "device graph on"), (ends, "the loss does not use the same outputs each time")):
        inputs = batches(device, len(weights))
        assert train(model, inputs, amp, weights=weights) == train(plain, inputs, amp, weights=weights)
        assert words in said[-1]
    assert len(said) == 3  # recorded twice, then given up
    assert graphs.recorded == 0
    assert same(plain, model)


def test_a_changed_output_that_its_own_gradient_is_computed_from(device):
    """Torch refuses that; a graph would compute with what is there now."""
    plain, model = made(device), made(device)
    graphs, said = recorded(model)
    for each in (plain, model):
        each.second[2] = torch.nn.Tanh()
        train(each, batches(device, 4))
        outputs = each(batches(device, 1)[0])
        if each is plain:
            outputs["all"][0] = outputs["all"][0] * 0.5
        else:
            assert graphs.recorded == 1
            outputs["all"][0].mul_(0.5)
        loss_of(outputs).backward()
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    train(model, batches(device, 4))
    assert len(said) == 2  # recorded again: that step was computed without the graph


def test_gradients_that_are_zeroed_in_place(device):
    plain, model = made(device), made(device)
    graphs, _ = recorded(model)
    inputs = [x for size in (32, 40) for x in batches(device, 3, size)] + batches(device, 2, 32)
    assert train(model, inputs, to_none=False) == train(plain, inputs, to_none=False)
    assert graphs.recorded == 2
    assert same(plain, model)


class _Scaled(torch.nn.Module):
    """Multiplies by a parameter that it holds in a list."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.held = [self.scale]

    def _apply(self, function):
        super()._apply(function)
        self.held = [self.scale]
        return self

    def forward(self, x):
        """Return the product."""
        return x * self.held[0]


class _Drift(torch.nn.Module):
    """Multiplies by a number of the host, which a graph has from when it was recorded; inside a list it is not seen."""

    def __init__(self):
        super().__init__()
        self.calls = [0]

    def forward(self, x):
        """Return other numbers each time."""
        self.calls[0] += 1
        return x * self.calls[0]


@pytest.mark.parametrize(("module", "words"), [(_Scaled, "difference inf"), (_Drift, "computes something else")])
def test_what_computes_something_else_when_it_is_replayed_is_not_used(device, module, words):
    """A gradient that no recorded pass gives, as of a parameter that is used behind the module's back, is one too."""
    model = made(device)
    model.second.add_module("other", module().to(device))
    graphs, said = recorded(model)
    train(model, batches(device, 4))
    assert graphs.recorded == 0
    assert words in said[0]


def test_an_overflow_puts_the_decision_off(device, monkeypatch):
    answers = iter([False, False, True])
    monkeypatch.setattr(network, "_is_finite", lambda passes: next(answers))
    plain, model = made(device), made(device)
    graphs, said = recorded(model)
    assert train(model, batches(device, 8)) == train(plain, batches(device, 8))
    assert graphs.recorded == 1
    assert len(said) == 1


CHANGES = {
    "frozen": lambda model: model.first.requires_grad_(False),
    "another layer": lambda model: model.second.__setitem__(2, torch.nn.ReLU()),
    "eval mode": lambda model: model.first[1].eval(),
    "momentum": lambda model: setattr(model.first[1], "momentum", 0.5),
    "padding": lambda model: setattr(model.first[0], "padding", (1, 1)),
    "another attribute": lambda model: setattr(model.second, "scale", torch.ones(1)),
    "another buffer": lambda model: setattr(model.first[1], "running_mean", model.first[1].running_mean.clone()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_is_changed_is_recorded_again(device, change):
    plain, model = made(device), made(device)
    graphs, said = recorded(model)
    for each in (plain, model):
        train(each, batches(device, 3))
        CHANGES[change](each)
        train(each, batches(device, 3))
    assert len(said) == 2
    assert graphs.recorded == 1
    assert same(plain, model)


def test_what_a_pass_sets_itself_and_notes_of_whoever_trains_are_no_change(device):
    model = made(device)
    model.first[2] = noting = Noting()
    graphs, said = recorded(model)
    for x in batches(device, 6):
        (model.loss_so_far,) = train(model, [x])
    assert noting.shape == (4, 8, 30, 30)
    assert len(said) == graphs.recorded == 1


REFUSALS = {
    "waits": (lambda model: setattr(model, "asks", True), "4x3x32x32 could not be recorded: operation not permitted"),
    "draws": (lambda model: setattr(model, "draws", True), "4x3x32x32: the network draws random numbers on the host"),
    "shapes": (lambda model: setattr(model, "gives_shape", True), "the network returns a Size"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_recorded_is_computed_as_ever(device, name):
    change, words = REFUSALS[name]
    trained = []
    for armed in (False, True):
        model = made(device)
        change(model)
        if armed:
            graphs, said = recorded(model)
        torch.manual_seed(3)
        trained.append((train(model, batches(device, 5)), torch.rand(3), torch.rand(3, device=device).cpu(), model))
    assert graphs.recorded == 0
    assert len(said) == 1
    assert words in said[0]
    assert "more" not in said[0]
    (losses, *drawn, plain), (ours, *drawn_by_ours, model) = trained
    assert ours == losses
    assert all(map(torch.equal, drawn, drawn_by_ours))
    assert same(plain, model)


def test_a_device_that_is_lost_is_told(monkeypatch):
    def refuse(*_):
        raise RuntimeError("unspecified launch failure")

    cpu_has_graphs(monkeypatch, StandIn)
    monkeypatch.setattr(recorder, "alive", lambda device: monkeypatch.setattr(torch.cuda, "empty_cache", refuse))
    model = made()
    model.asks = True
    recorded(model)
    with pytest.raises(DeviceLostError, match=r"rocm\.step\.graph=off"):
        train(model, batches("cpu", 3))


class _Average(torch.nn.Module):
    """Keeps a running mean in a tensor that is no buffer."""

    def __init__(self, device):
        super().__init__()
        self.mean = torch.zeros((), device=device)

    def forward(self, x):
        """Follow the mean, in place."""
        self.mean.lerp_(x.detach().mean(), 0.1)
        return x


def test_a_tensor_that_is_no_buffer_is_left_as_it_was_by_the_recording(device):
    plain, model = made(device), made(device)
    for each in (plain, model):
        each.second.add_module("average", _Average(device))
    graphs, _ = recorded(model)
    assert train(model, batches(device, 6)) == train(plain, batches(device, 6))
    assert graphs.recorded == 1
    assert torch.equal(model.second.average.mean, plain.second.average.mean)


@pytest.fixture
def times(monkeypatch):
    """Let passes take the host and the device these milliseconds, eager and recorded."""
    cpu_has_graphs(monkeypatch, StandIn)
    measured = network.timed

    def taken(*pairs):
        following = itertools.cycle(pairs)
        monkeypatch.setattr(network, "timed", lambda *given: (*next(following), measured(*given)[2]))

    return taken


@pytest.mark.parametrize(
    ("host", "eager", "graph", "free", "on", "words"),
    [
        (9.0, 10.0, 5.0, 2**30, True, "take 10.0 ms, the host 9.0 ms of it to launch them, and 5.0 ms recorded"),
        (6.0, 10.0, 5.0, 2**30, False, "take 10.0 ms, the host 6.0 ms of it to launch them"),
        (9.0, 10.0, 9.8, 2**30, False, "and 9.8 ms recorded"),
        (9.0, 10.0, 5.0, 2**20, False, "a step that is not recorded takes 0.5 GiB, and 0.0 GiB are free beside it"),
    ],
)
def test_auto_records_only_where_that_is_worth_it(monkeypatch, times, host, eager, graph, free, on, words):
    times((host, eager), (graph / 2, graph))
    reserved = iter([0, 2**29])
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *_: next(reserved))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (free, 2**31))
    plain, model = made(), made()
    graphs, said = recorded(model, "auto")
    inputs = batches("cpu", 5)
    assert train(model, inputs) == train(plain, inputs)
    assert (graphs.recorded == 1) is on
    assert len(said) == 1
    assert said[0].startswith(f"device graph {'on' if on else 'off'} for 4x3x32x32: ")
    assert words in said[0]
    if not on:
        gc.collect()
        assert [each() for each in StandIn.made] in ([], [None])  # its memory is not held


@pytest.mark.parametrize(("of_an_epoch", "mode", "shapes"), [(6, "auto", 1), (1, "auto", 2), (6, "on", 2)])
def test_auto_leaves_a_last_batch_of_another_shape_alone(times, of_an_epoch, mode, shapes):
    times((9.0, 10.0), (2.0, 5.0))
    plain, model = made(), made()
    graphs, said = recorded(model, mode)
    inputs = (batches("cpu", of_an_epoch, 32) + batches("cpu", 1, 24)) * 4 + batches("cpu", 5, 32)
    assert train(model, inputs) == train(plain, inputs)
    assert graphs.recorded == len(said) == shapes
    assert "4x3x32x32" in said[0]
