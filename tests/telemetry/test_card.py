"""The right card among several: by PCI address, by torch's order, never by guessing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.telemetry.card import TorchCard, torch_card

from ..fake_trees import RAPHAEL, RX5600XT, RX6900XT, RX7900XTX
from .sensors import find, tree

pytestmark = pytest.mark.once


def test_the_address_decides_whatever_the_numbers_say(tmp_path, monkeypatch):
    root = tree(tmp_path, RX5600XT, RX6900XT)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1,0")
    assert find(root, 1, "0000:03:00.0").name == "Radeon RX 5600 XT"
    assert find(root, 0, "0000:04:00.1").name == "Radeon RX 6900 XT"  # a partition of the same accelerator
    assert find(root, 0, "0000:77:00.0").bus == "0000:77:00.0"  # not in the tables: the address is enough


@pytest.mark.parametrize(
    ("environ", "index", "bus"),
    [
        ({}, 1, "0000:04:00.0"),
        ({"HIP_VISIBLE_DEVICES": "1,0"}, 0, "0000:04:00.0"),
        ({"ROCR_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "1"}, 0, "0000:03:00.0"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, 0, "0000:04:00.0"),  # what older Ultralytics sets for device=1
        ({"HIP_VISIBLE_DEVICES": "1"}, 1, None),
    ],
)
def test_without_an_address_torchs_order_decides(tmp_path, monkeypatch, environ, index, bus):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    card = find(tree(tmp_path, RX5600XT, RX6900XT), index)
    assert (card and card.bus) == bus


def test_a_card_whose_memory_differs_is_not_taken(tmp_path):
    """Variables set after HIP had started are not what torch counts by."""
    root = tree(tmp_path, RAPHAEL, RX7900XTX)
    assert find(root, 0, total_gb=15.6).integrated  # what it borrows differs
    assert find(root, 1, total_gb=24).name == "Radeon RX 7900 XTX"
    assert find(root, 1, total_gb=16) is None


def test_the_card_behind_a_torch_device(monkeypatch):
    def properties(index):
        return SimpleNamespace(total_memory=6 * 2**30, pci_bus_id=0xC3, pci_device_id=2, pci_domain_id=index)

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    assert torch_card(torch.device("cuda:1")) == TorchCard(1, 6 * 2**30, "0001:c3:02.0")
    assert torch_card(torch.device("cuda")).index == 2
    assert torch_card(torch.device("cpu")) is None
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(name="as torch 1.13 has it"))
    assert torch_card(torch.device("cuda")).address is None
