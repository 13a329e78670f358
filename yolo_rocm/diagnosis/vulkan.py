"""`python -m yolo_rocm.diagnosis.vulkan`: which Vulkan devices ncnn finds, asked in a process of its own.

A broken Vulkan driver takes the process with it that asks for its devices.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from .probe_child import answers_only

_KINDS: Final = ("discrete GPU", "integrated GPU", "virtual GPU", "CPU")  # as ncnn counts them
_LIMIT_S: Final = 60


@dataclass(frozen=True)
class VulkanDevice:
    """A device that ncnn can use.

    Attributes:
        index: Its number: `device=vulkan:INDEX`.
        name: As its driver calls it.
        kind: What it is; `CPU` is a driver that computes on the processor, such as Mesa's lavapipe.
    """

    index: int
    name: str
    kind: str

    @property
    def is_software(self) -> bool:
        """Whether it is no GPU."""
        return self.kind == "CPU"


@functools.cache
def vulkan_devices() -> tuple[VulkanDevice, ...]:
    """Return the Vulkan devices of this machine; nothing where there is no ncnn, no driver, or a broken one. Cached."""
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(part for part in (package, os.environ.get("PYTHONPATH")) if part)
    command = [sys.executable, "-m", "yolo_rocm.diagnosis.vulkan"]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_S, env={**os.environ, "PYTHONPATH": path}
        )
        return tuple(VulkanDevice(**device) for device in json.loads(ended.stdout or "[]"))
    except (subprocess.TimeoutExpired, OSError, ValueError, TypeError):
        return ()


def find_here() -> list[VulkanDevice]:
    """Return the Vulkan devices, asked in this process."""
    try:
        import ncnn
    except ImportError:
        return []
    found = []
    for index in range(ncnn.get_gpu_count()):
        facts = ncnn.get_gpu_info(index)
        kind = facts.type()
        found.append(VulkanDevice(index, facts.device_name(), _KINDS[kind] if 0 <= kind < len(_KINDS) else "unknown"))
    return found


if __name__ == "__main__":
    with answers_only() as answers:
        answers.write(json.dumps([asdict(device) for device in find_here()]))
