"""Which sources tell about a training, in the order in which they are believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    """What may be asked for a device, decided by the training's thread and opened by the sampling one.

    Importing happens first and there: it is the training's thread that may print. Starting a library and asking a
    driver may block, and happens in `open`.

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

    def __post_init__(self) -> None:
        self.refused: dict[str, str] = {}

    def open(self) -> list[Source]:
        """Return the sources that can be used now."""
        opened: list[Source] = []
        told: set[str] = set()
        for source in self._of_the_card():
            if told >= OF_THE_CARD:  # sysfs tells all of it on most cards, and costs less than a library
                break
            if self._usable(source):
                opened.append(source)
                told |= OF_THE_CARD - source.read().missing
        if self.card is not None:
            source = Torch(self.card.index, whole_card="vram_used_mb" not in told)
            if self._usable(source):
                opened.append(source)
        host = Host(self.psutil)
        if self._usable(host):
            opened.append(host)
        return opened

    def _of_the_card(self) -> Iterator[Source]:
        if self.card is None:
            return
        address = self.card.address or (self.gpu.bus if self.gpu else None)
        if self.card.vendor == "amd":
            yield AmdSysfs(self.gpu, self.root)
            yield AmdSmi(self.amdsmi, address)
        else:
            yield Nvml(self.pynvml, address)

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
    """Decide what may be asked about a training on a torch device; opens nothing.

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
