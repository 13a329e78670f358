"""Sensors for the made trees: what amdgpu writes under a card's PCI folder (kernel: Documentation/gpu/amdgpu)."""

from __future__ import annotations

from pathlib import Path

from yolo_rocm.hardware import Gpu
from yolo_rocm.telemetry.card import TorchCard, gpu_of

from ..fake_trees import Card, make_tree, write

MIB = 2**20


def pci(root: Path, bus: int) -> Path:
    return root / f"sys/bus/pci/devices/0000:{bus:02x}:00.0"


def add_sensors(
    root: Path, bus: int, *, busy: int, used_mb: int, celsius: float, watts: float, power: str = "power1_average"
) -> Path:
    """Write the sensors of the card on a bus; the hwmon number is another one for each card, as on real machines."""
    folder = pci(root, bus)
    write(folder / "gpu_busy_percent", f"{busy}\n")
    write(folder / "mem_info_vram_used", f"{used_mb * MIB}\n")
    write(folder / "mem_info_gtt_used", f"{100 * MIB}\n")
    sensors = folder / f"hwmon/hwmon{bus}"
    write(sensors / "name", "amdgpu\n")
    write(sensors / "temp1_input", f"{int(celsius * 1000)}\n")
    write(sensors / power, f"{int(watts * 1e6)}\n")
    return folder


def tree(root: Path, *cards: Card) -> Path:
    """Write a machine whose first card is 10 % busy, its second 20 %, and so on."""
    make_tree(root, *cards)
    for number in range(1, len(cards) + 1):
        values = {"busy": 10 * number, "used_mb": 300 * number, "celsius": 40.0 + number, "watts": 100.5 + number}
        add_sensors(root, 2 + number, **values)
    return root


def find(root: Path, index: int = 0, address: str | None = None, total_gb: float | None = None) -> Gpu:
    """Return what is found for torch's card of that number, as torch 1.13 (no address) or a new one tells of it."""
    return gpu_of(TorchCard(index, None if total_gb is None else int(total_gb * 2**30), address), root)
