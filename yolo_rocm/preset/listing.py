"""All presets at a glance, by family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..errors import PresetError
from ..hardware import INTEGRATED, Machine, family_of
from .files import shipped_presets, user_presets
from .resolve import resolve

OWN: Final = "your own"
_ANY: Final = "any"


@dataclass(frozen=True)
class PresetRow:
    """One preset of the list."""

    name: str
    gfx: tuple[str, ...]
    title: str
    evidence: str


def grouped(machine: Machine) -> list[tuple[str, list[PresetRow]]]:
    """Return (group, presets) in the order of the families' age; the user's own first, those for any card last."""
    groups: dict[str, list[PresetRow]] = {}
    own = user_presets()
    for name in {**own, **shipped_presets()}:
        try:
            group, row = _row(name, machine)
        except PresetError as error:
            # One broken file of the user must not hide the others.
            group, row = OWN, PresetRow(name, (), f"cannot be used: {error}", "none")
        groups.setdefault(OWN if name in own else group, []).append(row)
    order = [OWN, *sorted(group for group in groups if group not in (OWN, _ANY)), _ANY]
    return [(group, groups[group]) for group in order if group in groups]


def _row(name: str, machine: Machine) -> tuple[str, PresetRow]:
    preset = resolve(name, machine=machine).preset
    gfx = tuple(preset.match.gfx)
    family = family_of(gfx[0]) if gfx else None
    inside = ", inside processors" if gfx and gfx[0] in INTEGRATED else ""
    return f"{family.upper()}{inside}" if family else _ANY, PresetRow(name, gfx, preset.title, preset.evidence)
