"""An AMD card through the files of its kernel driver: no library, no privileges, every generation since GCN."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..hardware import Gpu
from ..hardware.files import in_order, number
from .reading import MIB, Reading

# amdgpu's own numbering: 1 is the edge of the die, 2 its hottest spot; some accelerators only have the second.
_TEMPERATURES: Final = ("temp1_input", "temp2_input")
# A mean, or where the card has none the value of the moment.
_POWERS: Final = ("power1_average", "power1_input")


class AmdSysfs:
    """The files of one card. Whatever is missing, unreadable or no number is a gap.

    Args:
        gpu: The card, as `hardware` found it.
        root: Top of the file system.
    """

    name = "sysfs"

    def __init__(self, gpu: Gpu | None, root: Path = Path("/")) -> None:
        self._folder = _folder(gpu, root)
        self._sensors: Path | None = None
        # Most of what an integrated GPU computes with is borrowed from the host.
        self._pools = ("vram", "gtt") if gpu is not None and gpu.integrated else ("vram",)

    def read(self) -> Reading:
        """Read a handful of small files."""
        if self._folder is None:
            return Reading()
        if self._sensors is None or not self._sensors.is_dir():  # the number changes when a driver is bound anew
            self._sensors = next(iter(in_order(self._folder / "hwmon", "hwmon*")), None)
        milli, micro = self._sensor(_TEMPERATURES), self._sensor(_POWERS)
        return Reading(
            busy_percent=number(self._folder / "gpu_busy_percent"),
            vram_used_mb=self._memory("used"),
            vram_total_mb=self._memory("total"),
            temperature_c=None if milli is None else milli / 1e3,
            power_w=None if micro is None else micro / 1e6,
        ).plausible()

    def _sensor(self, names: tuple[str, ...]) -> int | None:
        if self._sensors is None:
            return None
        values = (number(self._sensors / name) for name in names)
        return next((value for value in values if value is not None), None)

    def _memory(self, what: str) -> float | None:
        assert self._folder is not None
        sizes = [number(self._folder / f"mem_info_{pool}_{what}") for pool in self._pools]
        present = [size for size in sizes if size is not None]
        return sum(present) / MIB if len(present) == len(sizes) else None


def _folder(gpu: Gpu | None, root: Path) -> Path | None:
    """Return the PCI folder of a card; the same one that `/sys/class/drm/cardN/device` links to."""
    if gpu is None:
        return None
    by_address = root / "sys/bus/pci/devices" / (gpu.bus or "none")
    if gpu.bus and (by_address.is_dir() or gpu.card is None):
        return by_address
    return root / "sys/class/drm" / gpu.card / "device" if gpu.card else None
