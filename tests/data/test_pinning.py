"""When batches go through pinned memory."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.data import pinning
from yolo_rocm.data.pinning import decide_pinning


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(pinning, "probe", lambda nbytes: "")
    monkeypatch.setattr(pinning.platform, "release", lambda: "6.8.0")
    monkeypatch.setattr(pinning.resources, "ram_available", lambda: 16 << 30)


def test_never_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert decide_pinning(True, True, 0) == (False, "")


@pytest.mark.parametrize(
    ("asked", "caller", "pinned"),
    [("auto", True, True), ("auto", False, False), (True, False, True), (False, True, False)],
)
def test_the_preset_decides_or_leaves_it_to_the_caller(gpu, asked, caller, pinned):
    assert decide_pinning(asked, caller, 1 << 20) == (pinned, "")


def test_auto_keeps_to_a_budget_and_off_wsl(gpu, monkeypatch):
    pinned, why = decide_pinning("auto", True, 1 << 30)
    assert not pinned
    assert "4.0 GB" in why
    assert decide_pinning(True, True, 1 << 30) == (True, "")  # who asks for it gets it
    monkeypatch.setattr(pinning.platform, "release", lambda: "5.15.90.1-microsoft-standard-WSL2")
    pinned, why = decide_pinning("auto", True, 1 << 20)
    assert not pinned
    assert "WSL" in why


@pytest.mark.skipif(torch.cuda.is_available(), reason="pinning works with a GPU")
def test_the_probe_says_why():
    assert "memory is not pinned: " in pinning.probe(1 << 20)


def test_the_probe_pins_as_much_as_a_batch_has(monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor.numel()))
    assert pinning.probe(1 << 20) == ""
    assert pinned == [1 << 20]
