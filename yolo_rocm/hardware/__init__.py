"""What this machine is: GPUs, drivers, limits, and the installed torch and packages, all read from files.

Nothing here imports torch or starts HIP, because a preset and its environment variables are chosen before that. May
import `utils` only. A newcomer adds a card in `pci_ids.csv`, a family in `catalogue.py`, and a fact about the machine
as a property of `Machine`; tests describe a machine as a made tree of files (`tests/fake_trees.py`).
"""

from __future__ import annotations

from .catalogue import INTEGRATED, family_of, overridden_gfx
from .gpus import HIDES_FIRST, HIDES_NEXT, OVERRIDE, Gpu
from .machine import Machine, detect
from .packages import at_least

__all__ = [
    "HIDES_FIRST",
    "HIDES_NEXT",
    "INTEGRATED",
    "OVERRIDE",
    "Gpu",
    "Machine",
    "at_least",
    "detect",
    "family_of",
    "overridden_gfx",
]
