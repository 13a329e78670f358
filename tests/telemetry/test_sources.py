"""Which sources are asked, in which order, and what stands in for what is missing."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
import torch

from yolo_rocm.telemetry.card import TorchCard
from yolo_rocm.telemetry.process import Host, Torch
from yolo_rocm.telemetry.reading import Reading, merged
from yolo_rocm.telemetry.sources import Sources, sources_for

from ..fake_trees import RX5600XT
from .sensors import find, pci, tree
from .test_libraries import amdsmi, nvml

pytestmark = pytest.mark.once

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
    assert reading.missing == {"host_cpu_percent", "own_cpu_percent"}  # need two looks
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


class Times(tuple):
    """Of all processors, the third of them idle."""

    idle = property(lambda self: self[2])


class Gone(Exception):
    """psutil's, of a process that has ended."""


class Made:
    """A process of a made machine."""

    def __init__(self, seconds, ended=0.0, children=()):
        self.seconds, self.ended, self.started, self.scans = seconds, ended, list(children), 0

    def children(self, recursive):
        """Return the processes it has started."""
        assert recursive
        self.scans += 1
        return list(self.started)

    def cpu_times(self):
        """Tell seconds, half of them of the system."""
        if self.seconds is None:
            raise Gone
        half = self.seconds / 2
        return SimpleNamespace(user=half, system=half, children_user=self.ended, children_system=self.ended)


def made_psutil(own, times):
    memory = SimpleNamespace(total=8 * 2**30, available=6 * 2**30)
    return SimpleNamespace(
        cpu_times=lambda: Times(next(times)), virtual_memory=lambda: memory, Process=lambda: own, Error=Gone
    )


def test_the_share_of_processors_is_that_since_the_last_look():
    times = iter([(10.0, 0.0, 90.0, 0.0), (25.0, 0.0, 95.0, 0.0), (25.0, 0.0, 95.0, 0.0)])
    own = Made(50.0)
    host = Host(made_psutil(own, times))
    assert host.read() == Reading(host_memory_mb=2048)
    own.seconds = 60.0
    assert host.read() == Reading(host_cpu_percent=75, host_memory_mb=2048, own_cpu_percent=50)
    assert host.read().host_cpu_percent is None  # no time has passed


def test_the_share_of_a_training_is_that_of_its_workers_too():
    """Each look lies 20 s of all processors after the one before, and none of them is idle."""
    worker = Made(5.0)
    own = Made(1.0, children=[worker])
    host = Host(made_psutil(own, ((20.0 * look, 0.0, 0.0, 0.0) for look in range(99))))
    shares = []
    for own_s, worker_s, ended in ((1, 5, 0), (2, 7, 0), (2, None, 4), (2, None, 4), (None, None, 4), (50, None, 4)):
        own.seconds, worker.seconds, own.ended = own_s, worker_s, ended
        shares.append(host.read().own_cpu_percent)
    # the worker that ended is counted by its parent, with a second more than it had when it was last seen
    assert shares[:4] == [None, 15.0, 5.0, 0.0]
    assert shares[4] == 0.0
    assert shares[5] == 100.0  # no more than all processors


def test_processes_are_looked_for_now_and_then():
    own = Made(1.0)
    host = Host(made_psutil(own, ((20.0 * look, 0.0, 0.0, 0.0) for look in range(99))))
    for _ in range(10):
        host.read()
    assert own.scans == 10  # workers start in the beginning
    late = Made(4.0)
    own.started.append(late)
    shares = [host.read().own_cpu_percent for _ in range(11)]
    assert own.scans == 12
    assert sum(shares) == 100 * 4.0 / 20


def test_a_system_that_tells_nothing_of_processes_leaves_a_gap():
    psutil_without = made_psutil(None, ((20.0 * look, 0.0, 0.0, 0.0) for look in range(99)))
    host = Host(psutil_without)
    host.read()
    assert host.read() == Reading(host_cpu_percent=100, host_memory_mb=2048)


def test_this_process_and_its_worker_are_in_the_machine():
    """With the real psutil: the busy loop of another process counts as this training's."""
    code = "import time\nprint(flush=True)\nend = time.process_time() + 60\nwhile time.process_time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as worker:
        assert worker.stdout.readline()
        host = Host(psutil)
        host.read()
        deadline, shares = time.monotonic() + 300, []
        while sum(shares) <= 0 and time.monotonic() < deadline:
            time.sleep(0.2)
            shares.append(host.read().own_cpu_percent or 0.0)
        worker.kill()
    assert 0 < shares[-1] <= 100
