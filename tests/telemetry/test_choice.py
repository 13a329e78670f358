"""Which sources are asked, in which order, and what stands in for what is missing."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest
import torch

from yolo_rocm.telemetry.card import TorchCard
from yolo_rocm.telemetry.choice import Sources, sources_for
from yolo_rocm.telemetry.process import Host, Torch
from yolo_rocm.telemetry.reading import Reading, merged

from ..fake_trees import RX5600XT
from .sensors import find, pci, tree
from .test_libraries import amdsmi, nvml

AMD = TorchCard(0, "amd", 6 * 2**30, "0000:03:00.0")


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Make torch say that it computes on a GPU with 6 GiB, of which 1 is free and it has reserved 2."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 2 * 2**30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (2**30, 6 * 2**30))


def names(sources):
    return [source.name for source in sources.open()]


def test_a_training_on_processors_has_the_host_alone():
    sources = sources_for(torch.device("cpu"))
    assert sources.card is None
    assert names(sources) == ["psutil"]


@pytest.mark.usefixtures("on_a_gpu")
def test_sysfs_that_tells_all_makes_the_library_unnecessary(tmp_path):
    root = tree(tmp_path, RX5600XT)
    started = []
    smi = amdsmi(amdsmi_init=lambda: started.append(1))
    sources = Sources(AMD, find(root), amdsmi=smi, psutil=psutil, root=root)
    assert names(sources) == ["sysfs", "torch", "psutil"]
    assert not started
    reading = merged(source.read() for source in sources.open())
    assert reading.missing == {"host_cpu_percent"}  # needs two looks
    assert (reading.vram_used_mb, reading.torch_reserved_mb) == (300, 2048)  # the driver's word before torch's


@pytest.mark.usefixtures("on_a_gpu")
def test_the_library_fills_what_sysfs_lacks(tmp_path):
    root = tree(tmp_path, RX5600XT)
    (pci(root, 3) / "gpu_busy_percent").unlink()
    sources = Sources(AMD, find(root), amdsmi=amdsmi(), root=root)
    reading = merged(source.read() for source in sources.open())
    assert names(sources) == ["sysfs", "amdsmi", "torch"]
    assert (reading.busy_percent, reading.vram_used_mb) == (96, 300)
    assert sources.refused == {"psutil": "psutil cannot be imported"}


@pytest.mark.usefixtures("on_a_gpu")
def test_torch_stands_in_where_neither_is_there(tmp_path):
    sources = Sources(AMD, None, root=tmp_path)
    (only,) = sources.open()
    assert only.read() == Reading(vram_used_mb=5 * 1024, vram_total_mb=6 * 1024, torch_reserved_mb=2048)
    assert set(sources.refused) == {"sysfs", "amdsmi", "psutil"}


@pytest.mark.usefixtures("on_a_gpu")
def test_nvidia_is_asked_through_nvml():
    sources = Sources(TorchCard(0, "nvidia", address="0000:65:00.0"), pynvml=nvml())
    assert names(sources) == ["nvml", "torch"]


def test_looking_never_starts_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert "not started" in Torch(0).why_not()


def test_the_share_of_processors_is_that_since_the_last_look():
    times = iter([(10.0, 0.0, 90.0, 0.0), (25.0, 0.0, 95.0, 0.0), (25.0, 0.0, 95.0, 0.0)])

    class Times(tuple):
        idle = property(lambda self: self[2])

    memory = SimpleNamespace(total=8 * 2**30, available=6 * 2**30)
    host = Host(SimpleNamespace(cpu_times=lambda: Times(next(times)), virtual_memory=lambda: memory))
    assert host.read() == Reading(host_memory_mb=2048)
    assert host.read() == Reading(host_cpu_percent=75, host_memory_mb=2048)
    assert host.read().host_cpu_percent is None  # no time has passed
