"""What this machine gives a loader: cores, memory and shared memory, within the limits of its container.

Read from files below a root, so that a made tree can stand for another machine. Nothing is imported or started for it.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/")
_CGROUP: Final = "sys/fs/cgroup"
_VISIBLE: Final = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def system_name() -> str:
    """Return `linux`, `windows` or `macos`; every other Unix counts as `linux`."""
    return {"Windows": "windows", "Darwin": "macos"}.get(platform.system(), "linux")


def cpu_cores(root: Path = ROOT) -> int:
    """Return the cores this process may use: its affinity, cut by the CPU quota of its control groups."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    for folder in _cgroup_folders(root, "cpu"):
        quota, period = _quota(folder)
        if quota and period:
            cores = min(cores, max(1, quota // period))
    return cores


def ram_available(root: Path = ROOT) -> int | None:
    """Return the bytes of memory this process can still take, or None where that cannot be read.

    The smaller of `MemAvailable` and what its control groups leave. Page cache that the kernel drops first
    (`inactive_file`) is not counted as used. macOS tells only how much memory there is: half of it is taken as free.
    """
    meminfo = dict(_pairs(root / "proc/meminfo"))
    found = [meminfo["MemAvailable"] * 1024] if "MemAvailable" in meminfo else []
    if not found and sys.platform == "darwin":
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2]
    for folder in _cgroup_folders(root, "memory"):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        usage = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes")
        if limit is None or usage is None:
            continue
        stat = dict(_pairs(folder / "memory.stat"))
        # Version 1 counts children only in the `total_` fields; version 2 always does and has no such fields.
        reclaimable = stat.get("total_inactive_file", stat.get("inactive_file", 0))
        found.append(max(0, limit - max(0, usage - reclaimable)))
    return min(found, default=None)


def shm_free(root: Path = ROOT) -> int | None:
    """Return the free bytes of /dev/shm, or None on a system that has none."""
    folder = root / "dev/shm"
    if not hasattr(os, "statvfs") or not folder.is_dir():
        return None
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


def gpu_count(root: Path = ROOT) -> int:
    """Return how many training processes share the cores, at least 1.

    `LOCAL_WORLD_SIZE` of torchrun says it. Otherwise one for each GPU that is visible; a small GPU beside a large one
    (the graphics unit of a CPU) does not train and is not counted.
    """
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    if ranks.isdigit():
        return max(1, int(ranks))
    memory = [size for node in (root / "sys/class/kfd/kfd/topology/nodes").glob("*") if (size := _kfd_vram(node))]
    cards = sum(size * 4 >= max(memory) for size in memory)
    cards += len(list((root / "proc/driver/nvidia/gpus").glob("*")))
    for name in _VISIBLE:
        if name in os.environ:
            cards = min(cards, len([entry for entry in os.environ[name].split(",") if entry.strip()]))
    return max(1, cards)


def _kfd_vram(node: Path) -> int:
    """Return the bytes of a GPU's own memory, 0 for the CPU, which is a node too."""
    if not dict(_pairs(node / "properties")).get("gfx_target_version"):
        return 0
    banks = [dict(_pairs(bank)) for bank in (node / "mem_banks").glob("*/properties")]
    # Heap types 1 and 2 are the card's own memory, visible to the CPU or not.
    return sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in (1, 2))


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders whose limits hold for this process: its group and every group above it, versions 1 and 2.

    In a container the path of the group is often that of the host and does not exist; the top of the mount is then
    the container's own group.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        tops = [root / _CGROUP] if not names else [root / _CGROUP / controller, root / _CGROUP / names]
        top = next((top for top in tops if top.is_dir()), None)
        if top is None:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield top.joinpath(*parts[:depth])


def _quota(folder: Path) -> tuple[int | None, int | None]:
    """Return CPU quota and period in microseconds; no quota where there is none."""
    fields = _text(folder / "cpu.max").split()
    if len(fields) == 2:
        return (int(fields[0]) if fields[0].isdigit() else None), (int(fields[1]) if fields[1].isdigit() else None)
    return _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")


def _number(path: Path) -> int | None:
    """Read a file of one number; `max`, -1 (both: no limit) and rubbish are None."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _pairs(path: Path) -> Iterator[tuple[str, int]]:
    """Read lines of a name, perhaps a colon, and a number."""
    for line in _text(path).splitlines():
        fields = line.replace(":", " ").split()
        if len(fields) >= 2 and fields[1].isdigit():
            yield fields[0], int(fields[1])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
