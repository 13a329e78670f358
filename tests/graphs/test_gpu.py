"""What only a GPU shows of recorded passes: threads, memory, streams, and whole detectors under our engines."""

from __future__ import annotations

import copy
import gc
import threading

import pytest
import torch

from yolo_rocm.bench.peak import held_by_graphs
from yolo_rocm.bench.ways import LEAN_KIND, OURS_KIND, ways
from yolo_rocm.graphs.network import NetworkGraphs
from yolo_rocm.ultralytics_hooks import train_steps
from yolo_rocm.ultralytics_hooks.network_calls import graphed_networks

from .trained import batches, made, recorded, same, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
GPU = torch.device("cuda:0")


@pytest.fixture(autouse=True)
def deterministic(monkeypatch):
    """The vendor library adds up in one order."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)


def test_what_cannot_be_recorded_leaves_torch_as_it_was():
    plain, model = made(GPU), made(GPU)
    model.asks = True
    graphs, said = recorded(model)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    held, before = held_by_graphs(GPU), torch.cuda.current_stream()
    assert train(model, batches(GPU, 5)) == train(plain, batches(GPU, 5))
    assert graphs.recorded == 0
    assert "could not be recorded" in said[0]
    assert len(said) == 1
    assert torch.cuda.current_stream() == before
    torch.rand(3, device=GPU)  # the generator does not believe that it is recorded
    gc.collect()
    torch.cuda.empty_cache()
    assert held_by_graphs(GPU) <= held
    # empty_cache still works, and the next network is recorded
    reserved = torch.cuda.memory_reserved(GPU)  # with what other tests of this process still hold
    torch.empty(2**28, dtype=torch.uint8, device=GPU)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(GPU) <= reserved
    plain, model = made(GPU), made(GPU)
    graphs, _ = recorded(model)
    assert train(model, batches(GPU, 5)) == train(plain, batches(GPU, 5))
    assert graphs.recorded == 1


def test_a_thread_that_copies_to_the_device_does_not_disturb():
    over, batch = threading.Event(), torch.ones(64, 1024)

    def load():
        while not over.is_set():
            batch.pin_memory().to(GPU, non_blocking=True)

    loader = threading.Thread(target=load)
    loader.start()
    try:
        plain, model = made(GPU), made(GPU)
        graphs, said = recorded(model)
        assert train(model, batches(GPU, 6)) == train(plain, batches(GPU, 6))
        assert graphs.recorded == 1, said
    finally:
        over.set()
        loader.join()


def test_memory_comes_back_by_forgetting_and_with_the_model():
    gc.collect()
    torch.cuda.empty_cache()
    start = held_by_graphs(GPU)
    gc.disable()  # nothing waits for it
    try:
        model = made(GPU)
        graphs, _ = recorded(model)
        for let_go in (graphs.forget, graphs.close):
            train(model, batches(GPU, 4, 256))
            assert held_by_graphs(GPU) > start + 2**20
            let_go()
            torch.cuda.empty_cache()
            assert held_by_graphs(GPU) <= start
        graphs, _ = recorded(model)
        train(model, batches(GPU, 4, 256))
        assert held_by_graphs(GPU) > start + 2**20
        del graphs, model, let_go
        torch.cuda.empty_cache()
        assert held_by_graphs(GPU) <= start
    finally:
        gc.enable()


@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "amp"])
@pytest.mark.parametrize("kind", [OURS_KIND, LEAN_KIND])
def test_a_detector_under_our_engines(kind, amp):
    torch.manual_seed(0)
    first = train_steps.detector("yolov8n.yaml").to(GPU, memory_format=torch.channels_last).train()
    batch = train_steps.made_batch(first, 2, 64, torch.Generator().manual_seed(0))
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
        with way.applied("cuda"), graphed_networks():
            for number in range(8):
                with torch.autocast("cuda", torch.float16, enabled=amp):
                    loss = train_steps.loss_of(model, batch)
                (loss * 8).backward()
                if number % 2:
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
                losses.append(float(loss.detach()))
        found.append((losses, model))
    assert graphs.recorded == 1, said
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])
