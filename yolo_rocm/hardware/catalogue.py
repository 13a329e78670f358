"""What follows from a GPU's ids: target, marketing name, family, wave size, built into a processor or not."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from typing import Final

AMD: Final = 0x1002
NVIDIA: Final = 0x10DE

# Later entries are more particular: gfx908 is CDNA although gfx9 is GCN.
FAMILIES: Final = (
    ("gfx7", "gcn"),
    ("gfx8", "gcn"),
    ("gfx9", "gcn"),
    ("gfx908", "cdna1"),
    ("gfx90a", "cdna2"),
    ("gfx94", "cdna3"),
    ("gfx950", "cdna4"),
    ("gfx101", "rdna1"),
    ("gfx103", "rdna2"),
    ("gfx110", "rdna3"),
    ("gfx115", "rdna3.5"),
    ("gfx120", "rdna4"),
)
# Targets that exist only inside processors. Not gfx942: MI300A shares it with MI300X.
INTEGRATED: Final = frozenset(
    {"gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036"}
    | {"gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"}
)
# Families without bf16 instructions: https://rocm.docs.amd.com/projects/HIP/en/docs-6.3.2/reference/hardware_features.html
WITHOUT_BF16: Final = frozenset({"gcn", "rdna1", "rdna2"})
_PCI_IDS: Final = Path(__file__).with_name("pci_ids.csv")


@cache
def pci_ids() -> tuple[dict[int, str], dict[tuple[int, int | None], str]]:
    """Return the table of AMD's PCI ids: target by device, and name by device and revision; None is any revision."""
    targets, names = {}, {}
    with _PCI_IDS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            device, revision = int(row["device"], 16), int(row["revision"], 16) if row["revision"] else None
            if row["gfx"]:
                targets[device] = row["gfx"]
            if row["name"]:
                names[device, revision] = row["name"]
    return targets, names


def gfx_name(target: int) -> str:
    """Turn KFD's decimal `gfx_target_version` into a name: 100100 -> gfx1010, 90402 -> gfx942, 90010 -> gfx90a."""
    major, minor, step = target // 10000, target // 100 % 100, target % 100
    return f"gfx{major}{minor}{step:x}"


def overridden_gfx(version: str | None) -> str | None:
    """Return the target an `HSA_OVERRIDE_GFX_VERSION` means: 10.3.0 -> gfx1030; None where it is not one.

    Read as libhsakmt reads it (topology.c): exactly three decimal numbers.
    """
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version or "")
    if match is None:
        return None
    major, minor, step = (int(part) for part in match.groups())
    return f"gfx{major}{minor}{step:x}" if major <= 63 and minor <= 255 and step <= 255 else None


def target_of(device: int | None) -> str | None:
    """Return the gfx target of an AMD PCI device id."""
    return pci_ids()[0].get(device or 0)


def marketing_name(device: int | None, revision: int | None) -> str | None:
    """Return the name under which a card is sold, or None for one that is not in the table."""
    names = pci_ids()[1]
    return names.get((device or 0, revision)) or names.get((device or 0, None))


def family_of(gfx: str | None) -> str | None:
    """Return `gcn`, `rdna1` ... `rdna4` or `cdna1` ... `cdna4`."""
    return next((family for prefix, family in reversed(FAMILIES) if (gfx or "").startswith(prefix)), None)


def wave_of(gfx: str | None) -> int | None:
    """Return the native wave size: RDNA runs 32 lanes, GCN and CDNA 64."""
    family = family_of(gfx)
    return None if family is None else 32 if family.startswith("rdna") else 64
