"""Which sources are read for a training, in the order in which they are believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..hardware import Gpu
from .card import TorchCard, gpu_of, torch_card
from .libraries import AmdSmi, Nvml, imported
from .process import Host, Torch
from .reading import OF_THE_CARD, Source
from .sysfs import AmdSysfs


@dataclass
class Sources:
    """What may be read about a device, decided by the training's thread and opened by the sampling one.

    Modules are imported first, in the training's thread, which may print. Starting a library and asking a driver may
    block, and happens in `open`.

    Attributes:
        card: The GPU as torch sees it; None for a training on processors.
        gpu: The same GPU as the machine's files have it; None where it could not be found.
        amdsmi: The module, where importable.
        pynvml: The module, where importable.
        psutil: The module, where importable.
        root: Top of the file system.
        refused: Name of each source that cannot be used, with its reason; filled by `open`.
    """

    card: TorchCard | None = None
    gpu: Gpu | None = None
    amdsmi: Any = None
    pynvml: Any = None
    psutil: Any = None
    root: Path = Path("/")
    refused: dict[str, str] = field(default_factory=dict, init=False)

    def open(self) -> list[Source]:
        """Return the sources that can be used now."""
        opened: list[Source] = []
        known: set[str] = set()
        for source in self._of_the_card():
            if not known >= OF_THE_CARD and self._usable(source):  # sysfs has all of it on most cards, and costs less
                opened.append(source)
                known |= OF_THE_CARD - source.read().missing
        rest: list[Source] = [Host(self.psutil)]
        if self.card is not None:
            rest.insert(0, Torch(self.card.index, whole_card="vram_used_mb" not in known))
        return [*opened, *filter(self._usable, rest)]

    def _of_the_card(self) -> list[Source]:
        if self.card is None:
            return []
        address = self.card.address or (self.gpu.bus if self.gpu else None)
        if self.card.vendor == "amd":
            return [AmdSysfs(self.gpu, self.root), AmdSmi(self.amdsmi, address)]
        return [Nvml(self.pynvml, address)]

    def _usable(self, source: Source) -> bool:
        try:
            reason = source.why_not()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        if reason is not None:
            self.refused[source.name] = reason
            source.close()
        return reason is None


def sources_for(device: Any, root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> Sources:
    """Decide what may be read about a training on a torch device; opens nothing.

    Args:
        device: The torch device of the training.
        root: Top of the file system; tests hand in a made tree.
        environ: Environment variables; those of this process by default.
    """
    card = torch_card(device)
    vendor = None if card is None else card.vendor
    return Sources(
        card=card,
        gpu=None if card is None else gpu_of(card, root, environ),
        amdsmi=imported("amdsmi") if vendor == "amd" else None,
        pynvml=imported("pynvml") if vendor == "nvidia" else None,
        psutil=imported("psutil"),
        root=root,
    )
