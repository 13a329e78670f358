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
    """The files of one card. Whatever is missing, unreadable, no number or beyond any card is a gap.

    Args:
        gpu: The card, as `hardware` found it.
        root: Top of the file system.
    """

    name = "sysfs"

    def __init__(self, gpu: Gpu | None, root: Path = Path("/")) -> None:
        self._folder = root / "sys/bus/pci/devices" / ((gpu and gpu.bus) or "none")
        # Most of what an integrated GPU computes with is borrowed from the host.
        self._pools = ("vram", "gtt") if gpu is not None and gpu.integrated else ("vram",)

    def read(self) -> Reading:
        """Read a handful of small files."""
        sensors = next(iter(in_order(self._folder / "hwmon", "hwmon*")), self._folder / "hwmon")
        return Reading(
            busy_percent=_first([self._folder / "gpu_busy_percent"], 1, 100),
            vram_used_mb=self._memory("used"),
            vram_total_mb=self._memory("total"),
            temperature_c=_first([sensors / name for name in _TEMPERATURES], 1e3, 200),
            power_w=_first([sensors / name for name in _POWERS], 1e6, 5000),
        )

    def _memory(self, what: str) -> float | None:
        sizes = [_first([self._folder / f"mem_info_{pool}_{what}"], MIB, 2**30) for pool in self._pools]
        present = [size for size in sizes if size is not None]
        return sum(present) if len(present) == len(sizes) else None


def _first(files: list[Path], unit: float, most: float) -> float | None:
    """Return the number in the first file that has one, in a unit; None where no card has such a value."""
    value = next((found for file in files if (found := number(file)) is not None), None)
    return value / unit if value is not None and 0 <= value / unit <= most else None
