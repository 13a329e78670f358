"""Which of a machine's GPUs a torch device is: its PCI address names the same card to torch and sysfs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..hardware import Gpu, detect

# torch and the driver count the same memory; firmware keeps a little of it back.
_SAME_MEMORY: Final = 0.1


@dataclass(frozen=True)
class TorchCard:
    """A GPU as torch sees it.

    Attributes:
        index: torch's number of it.
        total_bytes: Its memory; None where torch does not say.
        address: PCI address, e.g. `0000:03:00.0`; None where torch does not say, as 1.13 does not.
    """

    index: int
    total_bytes: int | None = None
    address: str | None = None


def torch_card(device: Any) -> TorchCard | None:
    """Return the card behind a torch device; None for a processor."""
    if device.type != "cuda":
        return None
    import torch

    index = torch.cuda.current_device() if device.index is None else int(device.index)
    properties = torch.cuda.get_device_properties(index)
    return TorchCard(index, getattr(properties, "total_memory", None), address_of(properties))


def address_of(properties: Any) -> str | None:
    """Return the PCI address in torch's device properties; None where they have none."""
    bus, slot = getattr(properties, "pci_bus_id", None), getattr(properties, "pci_device_id", None)
    if not isinstance(bus, int) or not isinstance(slot, int):
        return None
    domain = getattr(properties, "pci_domain_id", 0)
    return f"{domain if isinstance(domain, int) else 0:04x}:{bus:02x}:{slot:02x}.0"


def gpu_of(card: TorchCard, root: Path) -> Gpu | None:
    """Return which AMD GPU of the machine a torch card is, or None where that cannot be said for sure.

    By address where torch has it. Otherwise, as of torch 1.13, by number, counted as the environment has it now: a
    preset or Ultralytics itself may have hidden cards since the session began. If torch had started before that, the
    numbers are off; a card whose memory is another than torch says is therefore not taken.
    """
    gpus = [gpu for gpu in detect(root).gpus if gpu.vendor == "amd"]
    if card.address is not None:
        # Partitions of one accelerator differ in the last digit for KFD, and are one device on the PCI bus.
        same = next((gpu for gpu in gpus if _slot(gpu.bus) == _slot(card.address)), Gpu("amd"))
        return replace(same, bus=card.address)
    visible = [gpu for gpu in gpus if not gpu.hidden_by and gpu.node is not None]
    return next((gpu for gpu in visible[card.index : card.index + 1] if _fits(gpu, card)), None)


def _slot(address: str | None) -> str | None:
    return None if address is None else address.lower().rpartition(".")[0]


def _fits(gpu: Gpu, card: TorchCard) -> bool:
    """Return whether the memory is the same, as far as that is known; what an integrated GPU borrows differs."""
    if gpu.vram_gb is None or card.total_bytes is None or gpu.integrated:
        return True
    theirs = card.total_bytes / 2**30
    return abs(gpu.vram_gb - theirs) <= _SAME_MEMORY * max(gpu.vram_gb, theirs)
