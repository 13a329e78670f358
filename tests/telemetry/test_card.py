"""The right card among several: by PCI address, by torch's order, never by guessing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.telemetry.card import TorchCard, address_of, torch_card

from ..fake_trees import MI50, RAPHAEL, RX5600XT, RX6900XT, RX7900XTX
from .sensors import find, tree

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("properties", "address"),
    [
        ({"pci_bus_id": 3, "pci_device_id": 0, "pci_domain_id": 0}, "0000:03:00.0"),
        ({"pci_bus_id": 0xC3, "pci_device_id": 2, "pci_domain_id": 1}, "0001:c3:02.0"),
        ({"pci_bus_id": 3, "pci_device_id": 0, "pci_domain_id": None}, "0000:03:00.0"),
        ({"name": "as torch 1.13 has it"}, None),
    ],
)
def test_torch_tells_an_address_or_none(properties, address):
    assert address_of(SimpleNamespace(**properties)) == address


def test_the_address_decides_whatever_the_numbers_say(tmp_path):
    root = tree(tmp_path, RX5600XT, RX6900XT)
    assert find(root, 0, "0000:04:00.0").name == "Radeon RX 6900 XT"
    assert find(root, 1, "0000:03:00.0", HIP_VISIBLE_DEVICES="1,0").name == "Radeon RX 5600 XT"
    assert find(root, 0, "0000:04:00.1").name == "Radeon RX 6900 XT"  # a partition of the same accelerator
    assert find(root, 0, "0000:77:00.0").bus == "0000:77:00.0"  # not in the tables: the address is enough


@pytest.mark.parametrize(
    ("environ", "index", "bus"),
    [
        ({}, 0, 3),
        ({}, 1, 4),
        ({"HIP_VISIBLE_DEVICES": "1,0"}, 0, 4),
        ({"ROCR_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "1"}, 0, 3),
        ({"CUDA_VISIBLE_DEVICES": "1"}, 0, 4),  # what older Ultralytics sets for device=1
    ],
)
def test_without_an_address_torchs_order_decides(tmp_path, environ, index, bus):
    assert find(tree(tmp_path, RX5600XT, RX6900XT), index, **environ).bus == f"0000:0{bus}:00.0"


def test_a_card_that_is_hidden_is_not_counted(tmp_path):
    assert find(tree(tmp_path, RX5600XT, RX6900XT), 1, HIP_VISIBLE_DEVICES="1") is None


def test_a_card_whose_memory_differs_is_not_taken(tmp_path):
    """Variables set after HIP had started are not what torch counts by."""
    root = tree(tmp_path, RX5600XT, RX6900XT)
    assert find(root, 0, total_gb=5.98, HIP_VISIBLE_DEVICES="1").name == "Radeon RX 5600 XT"
    assert find(root, 0, total_gb=24) is None
    twins = tree(tmp_path / "twins", RX6900XT, RX6900XT, MI50)
    assert find(twins, 0, total_gb=16).bus == "0000:03:00.0"
    assert find(twins, 3, total_gb=16) is None


def test_an_integrated_gpu_beside_a_card(tmp_path):
    root = tree(tmp_path, RAPHAEL, RX7900XTX)
    assert find(root, 0, total_gb=24, HIP_VISIBLE_DEVICES="1").name == "Radeon RX 7900 XTX"
    assert find(root, 0, total_gb=15.6).integrated


def test_the_card_behind_a_torch_device(monkeypatch):
    def properties(index):
        return SimpleNamespace(total_memory=6 * 2**30, pci_bus_id=index, pci_device_id=0)

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    assert torch_card(torch.device("cuda:1")) == TorchCard(1, 6 * 2**30, "0000:01:00.0")
    assert torch_card(torch.device("cuda")) == TorchCard(2, 6 * 2**30, "0000:02:00.0")
    assert torch_card(torch.device("cpu")) is None
