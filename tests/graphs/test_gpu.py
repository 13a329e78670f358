"""On a GPU: recorded passes compute what they compute otherwise, to the last bit, and give everything back."""

from __future__ import annotations

import copy
import gc
import threading

import pytest
import torch
from torch import nn

from yolo_rocm.bench.peak import held_by_graphs
from yolo_rocm.bench.ways import LEAN_KIND, OURS_KIND, ways
from yolo_rocm.graphs import network
from yolo_rocm.graphs.network import NetworkGraphs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
GPU = torch.device("cuda:0")


class Network(nn.Module):
    """Two convolutions with BatchNorm, two outputs; `compute` is what Ultralytics calls `_predict_once`."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU())
        self.asks = False

    def compute(self, x):
        """Return two outputs with gradients and one without."""
        first = self.first(x)
        if self.asks:
            first.sum().item()
        return {"first": first, "all": [self.second(first), x * 2]}

    def forward(self, x):
        """Compute, recorded where somebody has asked for it."""
        known = network.of(self)
        return self.compute(x) if known is None else known(self, self.compute, x)


@pytest.fixture(autouse=True)
def deterministic(monkeypatch):
    """The vendor library adds up in one order."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)


def made(seed=0):
    """Return a network on the GPU, in training mode."""
    torch.manual_seed(seed)
    return Network().to(GPU).train()


def batches(count, size=32):
    """Return inputs."""
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(4, 3, size, size, generator=generator).to(GPU) for _ in range(count)]


def loss_of(outputs, first=0.0):
    """Return a loss that uses the second output, and the first one if asked."""
    loss = outputs["all"][0].float().square().mean()
    return loss + first * outputs["first"].float().square().mean() if first else loss


def train(model, inputs, amp=False, accumulate=1, weights=None, kept=None):
    """Train a model; return the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=amp, init_scale=256.0)
    losses = []
    for number, x in enumerate(inputs):
        with torch.autocast("cuda", torch.float16, enabled=amp):
            loss = loss_of(model(x), weights[number] if weights else 0.0)
        scaler.scale(loss).backward()
        losses.append(float(loss))
        if kept is not None:
            kept.append(loss)
        if number % accumulate == accumulate - 1:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
    return losses


def same(one, other):
    """Return whether two models are the same to the last bit, statistics included."""
    mine, yours = one.state_dict(), other.state_dict()
    return all(torch.equal(mine[name], yours[name]) for name in mine)


def recorded(model):
    """Ask for a model's graphs; return them, and what is said."""
    said = []
    return NetworkGraphs(model, "on", said.append), said


@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "amp"])
@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_training_is_the_same(amp, accumulate):
    plain, model = made(), made()
    graphs, said = recorded(model)
    expected = train(plain, batches(9), amp, accumulate)
    assert train(model, batches(9), amp, accumulate) == expected
    assert graphs.recorded == 1
    assert "device graph on for 4x3x32x32" in said[0]
    assert same(plain, model)


def test_a_loss_that_somebody_keeps_does_not_disturb():
    plain, model = made(), made()
    graphs, _ = recorded(model)
    kept = []  # every step's, so that autograd's nodes of the first stream stay alive
    assert train(model, batches(6), kept=kept) == train(plain, batches(6))
    assert graphs.recorded == 1


def test_each_shape_has_its_own():
    plain, model = made(), made()
    graphs, said = recorded(model)
    inputs = [x for pair in zip(batches(5, 32), batches(5, 48), strict=True) for x in pair]
    assert train(model, inputs) == train(plain, inputs)
    assert graphs.recorded == 2
    assert len(said) == 2
    assert same(plain, model)


def test_a_second_pass_before_the_first_one_is_over_is_not_recorded():
    plain, model = made(), made()
    recorded(model)
    train(plain, batches(3)), train(model, batches(3))
    x, y = batches(2)
    for each in (plain, model):
        loss = loss_of(each(x)) + 2 * loss_of(each(y))
        loss.backward()
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert same(plain, model)


def test_backward_twice_is_refused_in_words():
    model = made()
    recorded(model)
    train(model, batches(3))
    loss = loss_of(model(batches(1)[0]))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"step\.graph: off"):
        loss.backward()


def test_a_pass_without_backward_leaves_the_next_one_alone():
    plain, model = made(), made()
    graphs, _ = recorded(model)
    for each in (plain, model):
        train(each, batches(3))
        each(batches(1)[0])  # dropped
        train(each, batches(3))
    assert same(plain, model)
    assert graphs.recorded == 1


def test_a_loss_that_begins_to_use_another_output():
    plain, model = made(), made()
    graphs, _ = recorded(model)
    weights = [0.0] * 4 + [0.5] * 3
    assert train(model, batches(7), weights=weights) == train(plain, batches(7), weights=weights)
    assert graphs.recorded == 1
    assert same(plain, model)


def test_frozen_layers_and_hooks_are_seen():
    plain, model = made(), made()
    graphs, said = recorded(model)
    seen = []
    for each in (plain, model):
        train(each, batches(4))
        each.first.requires_grad_(False)
        train(each, batches(4))
    assert graphs.recorded == 1
    assert len(said) == 2
    handle = model.second.register_forward_hook(lambda *_: seen.append(1))
    for each in (plain, model):
        train(each, batches(2))
    handle.remove()
    assert len(seen) == 2
    assert same(plain, model)


def test_what_cannot_be_recorded_leaves_torch_as_it_was():
    plain, model = made(), made()
    model.asks = True
    graphs, said = recorded(model)
    torch.cuda.synchronize()
    before = torch.cuda.current_stream()
    assert train(model, batches(5)) == train(plain, batches(5))
    assert graphs.recorded == 0
    assert "could not be recorded" in said[0]
    assert len(said) == 1
    assert torch.cuda.current_stream() == before
    torch.rand(3, device=GPU)  # the generator does not believe that it is recorded
    gc.collect()
    torch.cuda.empty_cache()
    held = held_by_graphs(GPU)
    assert held < 2**20
    # empty_cache still works, and the next network is recorded
    torch.empty(2**28, dtype=torch.uint8, device=GPU)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(GPU) < 2**28
    plain, model = made(), made()
    graphs, _ = recorded(model)
    assert train(model, batches(5)) == train(plain, batches(5))
    assert graphs.recorded == 1


def test_numbers_are_drawn_as_without():
    drawn = []
    for armed in (False, True):
        model = made()
        if armed:
            recorded(model)
        torch.manual_seed(3)
        train(model, batches(5))
        drawn.append((torch.rand(3), torch.rand(3, device=GPU).cpu()))
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert torch.equal(drawn[0][1], drawn[1][1])


def test_a_thread_that_copies_to_the_device_does_not_disturb():
    over = threading.Event()

    def load():
        while not over.is_set():
            torch.rand(64, 1024).pin_memory().to(GPU, non_blocking=True)

    loader = threading.Thread(target=load)
    loader.start()
    try:
        plain, model = made(), made()
        graphs, said = recorded(model)
        assert train(model, batches(6)) == train(plain, batches(6))
        assert graphs.recorded == 1, said
    finally:
        over.set()
        loader.join()


def test_memory_comes_back_with_the_model_and_by_forgetting():
    gc.collect()
    torch.cuda.empty_cache()
    start = held_by_graphs(GPU)
    for forget in (True, False):
        model = made()
        graphs, _ = recorded(model)
        train(model, batches(4, 256))
        assert held_by_graphs(GPU) > start + 2**20
        if forget:
            graphs.forget()
        else:
            del graphs, model
        gc.collect()
        torch.cuda.empty_cache()
        assert held_by_graphs(GPU) <= start
        model = graphs = None


@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "amp"])
@pytest.mark.parametrize("kind", [OURS_KIND, LEAN_KIND])
def test_a_detector_under_our_engines(kind, amp):
    from yolo_rocm import ultralytics_hooks as hooks

    torch.manual_seed(0)
    first = hooks.detector("yolov8n.yaml").to(GPU, memory_format=torch.channels_last).train()
    batch = hooks.made_batch(first, 2, 64, torch.Generator().manual_seed(0))
    batch = {key: value.to(GPU) for key, value in batch.items()}
    way = next(way for way in ways(chosen=kind) if way.kind == kind)
    found = []
    for armed in (False, True):
        model = copy.deepcopy(first)
        said = []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        if armed:
            graphs = NetworkGraphs(model, "on", said.append)
        losses = []
        with way.applied("cuda"), hooks.graphed_networks():
            for _ in range(5):
                with torch.autocast("cuda", torch.float16, enabled=amp):
                    loss = hooks.loss_of(model, batch)
                (loss * 8).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                losses.append(float(loss))
        found.append((losses, model))
    assert graphs.recorded == 1, said
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])
