"""A small network, a training of it, and a stand-in for device graphs where there is no GPU."""

from __future__ import annotations

import weakref
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from torch import nn

from yolo_rocm.graphs import network, recorder, trial
from yolo_rocm.graphs.network import NetworkGraphs
from yolo_rocm.graphs.pool import GraphPool


class Network(nn.Module):
    """Two convolutions with BatchNorm, two outputs; `compute` is what Ultralytics calls `_predict_once`."""

    eager = 0  # passes of all networks that were neither recorded nor replayed

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU())
        self.asks = self.draws = self.gives_shape = False

    def compute(self, x):
        """Return two outputs with gradients and one without."""
        Network.eager += not (StandIn.is_recording or StandIn.is_replaying)
        first = self.first(x)
        if self.asks and StandIn.is_recording:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        if self.asks:
            first.sum().item()  # waits for a value, which cannot be recorded
        if self.draws:
            torch.rand(1), torch.rand(1, device=x.device)
        more = {"shape": x.shape} if self.gives_shape else {}
        return {"first": first, "all": [self.second(first), x * 2], **more}

    def forward(self, x):
        """Compute, recorded where somebody has asked for it."""
        known = network.of(self)
        return self.compute(x) if known is None else known(self, self.compute, x)


def made(device="cpu"):
    """Return a network in training mode."""
    torch.manual_seed(0)
    return Network().to(device).train()


def batches(device, count, size=32):
    """Return inputs."""
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(4, 3, size, size, generator=generator).to(device) for _ in range(count)]


def loss_of(outputs, first=0.0):
    """Return a loss that uses the second output, and the first one if asked."""
    loss = outputs["all"][0].float().square().mean()
    return loss + first * outputs["first"].float().square().mean() if first else loss


def train(model, inputs, amp=False, accumulate=1, weights=None, kept=None, to_none=True):
    """Train a model; return the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", init_scale=256.0) if amp else None
    losses = []
    for number, x in enumerate(inputs):
        with torch.autocast("cuda", torch.float16) if amp else nullcontext():
            loss = loss_of(model(x), weights[number] if weights else 0.0)
        (loss if scaler is None else scaler.scale(loss)).backward()
        losses.append(float(loss.detach()))
        if kept is not None:
            kept.append(loss)
        if number % accumulate == accumulate - 1:
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
            optimizer.zero_grad(set_to_none=to_none)
    return losses


def same(one, other):
    """Return whether two models are the same to the last bit, statistics included."""
    mine, yours = one.state_dict(), other.state_dict()
    return all(torch.equal(mine[name], yours[name]) for name in mine)


def recorded(model, mode="on"):
    """Ask for a model's graphs; return them, and what is said."""
    said = []
    return NetworkGraphs(model, mode, said.append), said


class StandIn(GraphPool):
    """Records functions by keeping them, and replays them by calling them again into the memory of the first call.

    A replay computes with the leaves that were there when it was recorded. A forward pass spoils the memory of the
    gradients, as one that shares memory with a backward pass may.
    """

    is_recording = is_replaying = False  # a replay calls modules where a graph would not
    made = []  # every one of a test, weakly

    def __init__(self, device):
        self._device = device
        self._pending = self._at_next = None
        self._gradients = []
        StandIn.made.append(weakref.ref(self))

    @contextmanager
    def side_stream(self):
        """There is one stream."""
        yield

    def recorded(self, function):
        """Call the function, and keep it."""
        leaves = [(held, dict(held)) for held in _held(function)]
        StandIn.is_recording = True
        try:
            result = function()
        finally:
            StandIn.is_recording = False
        forward = isinstance(result, tuple)
        if not forward:
            self._gradients += [each for each in result if each is not None]
        return _Kept(function, result, forward, leaves, self._gradients), result


class Noting(nn.SiLU):
    """Sets attributes of its own in each call that a graph would not replay, to what they were before."""

    def forward(self, x):
        """Compute, and note."""
        if not StandIn.is_replaying:
            self.shape, self.ones = x.shape, x.new_ones(1)
        return super().forward(x)


class _Kept:
    def __init__(self, function, result, forward, leaves, gradients):
        self._function, self._result, self._leaves = function, result, leaves
        self._forward, self._gradients = forward, gradients
        self._places = [None if each is None else each.detach() for each in (result[0] if forward else result)]

    def replay(self):
        """Compute again, into the same memory."""
        now = [(held, dict(held)) for held, _ in self._leaves]
        for held, leaves in self._leaves:
            held.update(leaves)
        StandIn.is_replaying = True
        try:
            with torch.enable_grad():
                result = self._function()
        finally:
            StandIn.is_replaying = False
            for held, before in now:
                held.update(before)
        if self._forward:
            for gradient in self._gradients:
                gradient.fill_(float("nan"))
            self._result[0][:] = result[0]  # what the kept backward pass goes back through
        for place, each in zip(self._places, result[0] if self._forward else result, strict=True):
            if place is not None:
                with torch.inference_mode(place.is_inference()):  # a device graph writes to whatever it has recorded
                    place.copy_(each.detach())


def _held(function):
    """Return where the modules have their parameters that a recorded function computes with."""
    for cell in function.__closure__ or ():
        run = cell.cell_contents
        model = run.args[0] if isinstance(run, partial) else getattr(run, "__self__", None)
        if isinstance(model, nn.Module):
            return [module._parameters for module in model.modules()]
    return []


def cpu_has_graphs(monkeypatch, pool):
    """Let a CPU have device graphs, by a stand-in for their memory."""
    for name, value in {"DEVICES": ["cuda", "cpu"], "OLDEST": (1, 13), "GraphPool": pool}.items():
        monkeypatch.setattr(recorder, name, value)
    monkeypatch.setattr(trial, "_REPEATS", 1)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *_: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (2**30, 2**31))
    fork = torch.random.fork_rng
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: fork(devices=[]))
    StandIn.made.clear()
