"""A card as people call it: its targets, and cards that are not for ROCm's torch."""

from __future__ import annotations

import re
from typing import Final

from ..errors import ConfigError, PresetError
from ..hardware import Machine
from ..preset.files import find, near, plain, read, without_memory
from .table import table

_TARGET: Final = re.compile(r"gfx[0-9a-f]{3,4}")
_NVIDIA: Final = re.compile(
    r"\b(nvidia|geforce|[gr]tx|quadro|tesla|titan)|^(a[134]0|[abh][12]00|h20|gh200|l40?s?|t4|v100)$", re.IGNORECASE
)


def is_nvidia(card: str) -> bool:
    """Return whether people mean a card of NVIDIA."""
    return bool(_NVIDIA.search(card.strip()))


def targets_of(machine: Machine, card: str | None = None) -> tuple[str, ...]:
    """Return the targets to install kernels for: of the card that is named, else of the AMD GPUs that are found.

    Args:
        machine: The machine.
        card: A card as people call it, a preset's name, or a target such as `gfx1100`.

    Raises:
        ConfigError: There is no such card.
    """
    if card is None:
        cards = [gpu for gpu in machine.gpus if gpu.vendor == "amd" and gpu.gfx]
        # An integrated GPU beside a card is hidden from trainings, and needs no kernels.
        alone = [gpu for gpu in cards if not gpu.integrated] or cards
        return tuple(dict.fromkeys(str(gpu.gfx) for gpu in alone))
    if is_nvidia(card):
        return ()
    if _TARGET.fullmatch(card):
        return (card,)
    wanted = plain(without_memory(card))
    for row in table().cards:  # those without a preset
        if any(re.fullmatch(f"(pro|rx)?{wanted}", plain(name)) for name in row.names):
            return row.targets
    try:
        preset = find(card)[0]
    except PresetError:
        told = ", ".join(near(card))
        raise ConfigError(
            f"unknown card {card!r}. {f'Near it: {told}. ' if told else ''}Give it as its box names it (RX 7900 XTX), "
            "its target (gfx1100), or cpu; docs/install.md lists the cards."
        ) from None
    return tuple((read(preset).get("match") or {}).get("gfx", []))
