"""The system around the GPU: kernel, containers, limits on processors and memory, groups, device nodes."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .files import in_order, number, text, whole

_GIB: Final = 2**30
_UNLIMITED: Final = 1 << 60  # cgroup v1 writes 2^63 - 4096 for "no limit"
_CONTAINER: Final = re.compile(r"docker|containerd|kubepods|libpod|lxc|/machine\.slice")


@dataclass(frozen=True)
class DeviceNode:
    """A device file: who may open it, and whether this process can."""

    path: str
    mode: int
    owner: int
    group: str
    usable: bool


def overlays(system: str, root: Path) -> tuple[str, ...]:
    """Return the operating-system overlays that apply, e.g. `("linux", "wsl")`."""
    found = [system]
    if system == "linux":
        if "microsoft" in text(root / "proc/version").lower():
            found.append("wsl")
        marks = (root / ".dockerenv", root / "run/.containerenv", root / "run/systemd/container")
        if any(mark.exists() for mark in marks) or _CONTAINER.search(text(root / "proc/1/cgroup")):
            found.append("container")
    return tuple(found)


def kernel(root: Path) -> str | None:
    """Return the kernel's release, e.g. `6.8.0-45-generic`."""
    return text(root / "proc/sys/kernel/osrelease") or None


def distribution(root: Path) -> str | None:
    """Return the distribution's own name for itself."""
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', text(root / "etc/os-release"), re.MULTILINE)
    return match.group(1) if match else None


def amdgpu_driver(root: Path) -> str | None:
    """Return the version of the amdgpu kernel module, `in-tree` where it has none; None where it is not loaded."""
    module = root / "sys/module/amdgpu"
    return (text(module / "version") or "in-tree") if module.exists() else None


def nvidia_driver(root: Path) -> str | None:
    """Return the version of NVIDIA's kernel module; None where it is not loaded."""
    # The open module names the architecture before the version: "NVIDIA UNIX Open Kernel Module for x86_64  580.95.05".
    match = re.search(r"Kernel Module(?: +for +\S+)? +([\d.]+)", text(root / "proc/driver/nvidia/version"))
    return match.group(1) if match else None


def cores(root: Path) -> int:
    """Return how many processors this process may keep busy: its affinity, and the quota of its control group."""
    available = _affinity(root)
    limits = [available, *(limit for folder in _cgroups(root, "cpu") if (limit := _cpu_limit(folder)) is not None)]
    return max(1, min(limits))


def _affinity(root: Path) -> int:
    if root == Path("/") and hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    online = 0
    for part in text(root / "sys/devices/system/cpu/online").split(","):
        words = part.split("-")
        first, last = whole(words[0]), whole(words[-1])
        if first is not None and last is not None:
            online += last - first + 1
    return online or os.cpu_count() or 1


def _cpu_limit(folder: Path) -> int | None:
    words = text(folder / "cpu.max").split() or [text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    quota, period = whole(words[0]), whole(words[-1])
    # "max" is no number, and -1 means the same in version 1.
    return max(1, math.ceil(quota / period)) if quota and period and quota > 0 and period > 0 else None


def memory_gb(root: Path) -> tuple[float | None, float | None]:
    """Return (all, available) memory in GiB, as the control group allows."""
    facts = dict(re.findall(r"^(\w+):\s+(\d+) kB$", text(root / "proc/meminfo"), re.MULTILINE))
    total, free = ((int(facts[key]) * 1024 if key in facts else None) for key in ("MemTotal", "MemAvailable"))
    for folder in _cgroups(root, "memory"):
        limit = number(folder / "memory.max") or number(folder / "memory.limit_in_bytes")
        if limit is None or limit >= _UNLIMITED:
            continue
        used = number(folder / "memory.current") or number(folder / "memory.usage_in_bytes") or 0
        # Files that can be dropped count as used, and are not.
        cache = re.search(r"^(?:total_)?inactive_file (\d+)$", text(folder / "memory.stat"), re.MULTILINE)
        left = max(0, limit - max(0, used - (int(cache.group(1)) if cache else 0)))
        total = limit if total is None else min(total, limit)
        free = left if free is None else min(free, left)
    return (total / _GIB if total is not None else None, free / _GIB if free is not None else None)


def _cgroups(root: Path, controller: str) -> list[Path]:
    """Return this process's control group and its parents: each may hold a limit. Versions 2 and 1."""
    top = root / "sys/fs/cgroup"
    folders = []
    for line in text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        base = top / controller if controllers else top
        inside = path.strip("/")
        parts = inside.split("/") if inside and ".." not in inside.split("/") else []
        folders += [base.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
    # A container without a view of its own group sees its limits at the top.
    return folders or [top, top / controller]


def shm_gb(root: Path, ram_gb: float | None) -> float | None:
    """Return the size of `/dev/shm` in GiB; half of memory where the mount does not say; None where there is none."""
    for line in text(root / "proc/mounts").splitlines():
        words = line.split()
        if len(words) >= 4 and words[1] == "/dev/shm":
            match = re.search(r"(?:^|,)size=(\d+)([kmg]?)(?:,|$)", words[3])
            if match:
                return int(match.group(1)) * {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}[match.group(2)] / _GIB
            return ram_gb / 2 if ram_gb else None
    return None


def group_names(root: Path, numbers: Sequence[int] | None = None) -> tuple[str, ...]:
    """Return the groups of this process by name; a number that has none stays a number."""
    if numbers is None:
        numbers = sorted({*os.getgroups(), os.getegid()}) if hasattr(os, "getgroups") else []
    known = _groups(root)
    return tuple(known.get(gid, str(gid)) for gid in numbers)


def _groups(root: Path) -> dict[int, str]:
    entries = (line.split(":") for line in text(root / "etc/group").splitlines())
    numbered = ((whole(entry[2]), entry[0]) for entry in entries if len(entry) >= 3)
    return {gid: name for gid, name in numbered if gid is not None}


def device_nodes(root: Path) -> tuple[DeviceNode, ...]:
    """Return the device files ROCm opens: `/dev/kfd`, every render node, and WSL's `/dev/dxg`."""
    names = _groups(root)
    nodes = []
    for path in (root / "dev/kfd", *in_order(root / "dev/dri", "renderD*"), root / "dev/dxg"):
        try:
            facts = path.stat()
        except OSError:
            continue
        group, usable = names.get(facts.st_gid, str(facts.st_gid)), os.access(path, os.R_OK | os.W_OK)
        nodes.append(DeviceNode(f"/{path.relative_to(root)}", stat.S_IMODE(facts.st_mode), facts.st_uid, group, usable))
    return tuple(nodes)
