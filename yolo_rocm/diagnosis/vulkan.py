"""`python -m yolo_rocm.diagnosis.vulkan`: which Vulkan devices ncnn finds, asked in a process of its own.

A broken Vulkan driver takes the process with it that asks for its devices.
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import Final

from ..utils.child_process import answer_parent, run_module

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
    result = run_module("yolo_rocm.diagnosis.vulkan", {}, _LIMIT_S)
    return tuple(VulkanDevice(**device) for device in result.answer.get("devices", ()))


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
    answer_parent(lambda settings: {"devices": [asdict(device) for device in find_here()]})
