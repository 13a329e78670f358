"""What is read for which device: the driver's word before torch's, the host from the kernel's files."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.telemetry import sources
from yolo_rocm.telemetry.card import TorchCard
from yolo_rocm.telemetry.reading import Reading, merged
from yolo_rocm.telemetry.sources import HostFiles, TorchMemory, sources_for

from ..fake_trees import RX5600XT, write
from .sensors import pci, tree

pytestmark = pytest.mark.once


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Make torch say that it computes on a GPU with 6 GiB, of which 1 is free and it has reserved 2."""
    card = TorchCard(0, 6 * 2**30, "0000:03:00.0")
    monkeypatch.setattr(sources, "torch_card", lambda device: None if device.type == "cpu" else card)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 2 * 2**30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (2**30, 6 * 2**30))


def host(root, idle, busy, available_kb=6 * 2**20):
    write(root / "proc/stat", f"cpu  {busy} 0 10 {idle} 5 0 0 0 7 0\ncpu0 1 2 3 4\n")
    write(root / "proc/meminfo", f"MemTotal: {8 * 2**20} kB\nMemFree: 1 kB\nMemAvailable: {available_kb} kB\n")


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize(
    ("device", "hip", "names", "used"),
    [
        ("cpu", None, ["proc"], None),
        ("cuda", None, ["torch", "proc"], 5 * 1024),
        ("cuda", "6.2", ["sysfs", "torch", "proc"], 300),
    ],
)
def test_what_is_read_for_a_device(tmp_path, monkeypatch, device, hip, names, used):
    monkeypatch.setattr(torch.version, "hip", hip)
    host(tree(tmp_path, RX5600XT), 90, 10)
    (pci(tmp_path, 3) / "mem_info_vram_total").unlink()  # torch stands in for what the driver does not tell
    found = sources_for(torch.device(device), tmp_path)
    reading = merged(source.read() for source in found)
    assert [source.name for source in found] == names
    assert (reading.vram_used_mb, reading.host_memory_mb) == (used, 2048)
    assert reading.vram_total_mb == (None if device == "cpu" else 6 * 1024)
    assert reading.torch_reserved_mb == (None if device == "cpu" else 2048)


def test_reading_never_starts_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert TorchMemory(0).read() == Reading()


def test_the_share_of_processors_is_that_since_the_last_reading(tmp_path):
    source = HostFiles(tmp_path)
    shares = []
    for idle, busy in ((90, 10), (95, 25), (95, 25), (94, 45)):
        host(tmp_path, idle, busy)
        shares.append(source.read().host_cpu_percent)
    assert shares == [None, 75.0, None, 100.0]  # nothing before, no time between, idle time that steps back
