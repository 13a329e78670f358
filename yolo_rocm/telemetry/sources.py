"""What is read during a training: the kernel's files about card and host, and torch's memory.

No maker's library is asked: on NVIDIA there is torch's memory alone, and off Linux nothing about the host.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..hardware.files import text
from .card import gpu_of, torch_card
from .reading import MIB, Reading, Source
from .sysfs import AmdSysfs


class TorchMemory:
    """Memory of the GPU as torch has it.

    Args:
        index: torch's number of the card.
    """

    name = "torch"

    def __init__(self, index: int) -> None:
        self._index = index

    def read(self) -> Reading:
        """Read torch's allocator and the driver; nothing before torch has started, which reading must not do."""
        import torch

        cuda: Any = torch.cuda  # has no types in every version
        if not cuda.is_initialized():
            return Reading()
        free, total = cuda.mem_get_info(self._index)
        reserved = cuda.memory_reserved(self._index)
        return Reading(vram_used_mb=(total - free) / MIB, vram_total_mb=total / MIB, torch_reserved_mb=reserved / MIB)


class HostFiles:
    """Processors and memory of the host, from the kernel's files; Linux only.

    Args:
        root: Top of the file system.
    """

    name = "proc"

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._before = (0, 0)

    def read(self) -> Reading:
        """Read processor times since the last reading, and memory now."""
        memory = dict(line.split(":", 1) for line in text(self._proc / "meminfo").splitlines() if ":" in line)
        used = {name: int(memory[name].split()[0]) for name in ("MemTotal", "MemAvailable") if name in memory}
        # user, nice, system, idle, iowait, irq, softirq, steal; the time of guests after them is in that of users.
        times = [int(word) for word in text(self._proc / "stat").partition("\n")[0].split()[1:9]]
        total, idle = sum(times), sum(times[3:5])
        (total_before, idle_before), self._before = self._before, (total, idle)
        share = None
        if total_before and total > total_before:  # the kernel's idle time may step back a tick
            share = min(100.0, max(0.0, 100 * (1 - (idle - idle_before) / (total - total_before))))
        in_use = (used["MemTotal"] - used["MemAvailable"]) / 1024 if len(used) == 2 else None
        return Reading(host_cpu_percent=share, host_memory_mb=in_use)


def sources_for(device: Any, root: Path = Path("/")) -> list[Source]:
    """Return what is read about a training on a torch device, in the order in which it is believed.

    Args:
        device: The torch device of the training.
        root: Top of the file system; tests hand in a made tree.
    """
    import torch

    card = torch_card(device)
    if card is None:
        return [HostFiles(root)]
    sources: list[Source] = [TorchMemory(card.index), HostFiles(root)]
    return [AmdSysfs(gpu_of(card, root), root), *sources] if torch.version.hip else sources
