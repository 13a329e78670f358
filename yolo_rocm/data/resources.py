"""What a loader may take of this machine: free memory, free shared memory, and its share of the cores.

Read from files below a root, so that a made tree can describe another machine. Nothing is imported or started for it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from ..hardware import system
from ..hardware.gpus import linux_gpus
from ..utils.process_group import local_world

ROOT: Final = Path("/")
_GIB: Final = 2**30


def system_name() -> str:
    """Return `linux`, `windows` or `macos`; every other Unix counts as `linux`."""
    return {"win32": "windows", "darwin": "macos"}.get(sys.platform, "linux")


def ram_available(root: Path = ROOT) -> int | None:
    """Return the bytes of memory this process can still take, or None where that cannot be read.

    macOS tells only how much memory there is: half of it is taken as free.
    """
    _, free = system.memory_gb(root)
    if free is None and sys.platform == "darwin":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return None if free is None else int(free * _GIB)


def shm_free(root: Path = ROOT) -> int | None:
    """Return the free bytes of /dev/shm, or None on a system that has none."""
    folder = root / "dev/shm"
    if not hasattr(os, "statvfs") or not folder.is_dir():
        return None
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


def training_processes(root: Path = ROOT) -> int:
    """Return how many training processes share the cores, at least 1.

    `LOCAL_WORLD_SIZE` of torchrun says it. Otherwise one for each GPU that is visible; an integrated one next to a card
    does not train and is not counted.
    """
    ranks = local_world()
    if ranks is not None:
        return ranks
    return max(1, sum(not gpu.integrated for gpu in linux_gpus(root, os.environ) if not gpu.hidden_by))
