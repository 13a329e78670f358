"""The values of one moment, and what a source of them is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final, Protocol

MIB: Final = 2**20
# What no card and no host ever shows is a broken sensor or a file of something else: a gap, not a number.
_PLAUSIBLE: Final = {
    "busy_percent": (0.0, 100.0),
    "temperature_c": (-50.0, 200.0),
    "power_w": (0.0, 5000.0),
    "host_cpu_percent": (0.0, 100.0),
}
_ANY_SIZE: Final = (0.0, 2.0**30)  # MiB; a pebibyte


@dataclass(frozen=True)
class Reading:
    """The values of one source at one moment; None is a gap.

    Attributes:
        busy_percent: Share of time in which the GPU computed, as its driver counts it.
        vram_used_mb: Memory of the GPU in use, by every process, MiB.
        vram_total_mb: All of it.
        temperature_c: Degrees Celsius; the edge of the die, or its hottest spot where the card has no other sensor.
        power_w: Watts.
        torch_reserved_mb: Memory that torch holds on the GPU for this process, MiB.
        host_cpu_percent: Busy share of all processors of the host since the last reading.
        host_memory_mb: Memory of the host in use, MiB.
    """

    busy_percent: float | None = None
    vram_used_mb: float | None = None
    vram_total_mb: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    torch_reserved_mb: float | None = None
    host_cpu_percent: float | None = None
    host_memory_mb: float | None = None

    def plausible(self) -> Reading:
        """Return the reading without values that cannot be."""
        kept = {}
        for name in FIELDS:
            value = getattr(self, name)
            low, high = _PLAUSIBLE.get(name, _ANY_SIZE)
            kept[name] = float(value) if value is not None and low <= value <= high else None
        used, total = kept["vram_used_mb"], kept["vram_total_mb"]
        if total is not None and (total == 0 or (used is not None and used > total)):
            kept["vram_used_mb"] = kept["vram_total_mb"] = None
        return Reading(**kept)


FIELDS: Final = tuple(field.name for field in fields(Reading))


class Source(Protocol):
    """Something that can be read again and again, from one thread; `read` may raise or block.

    Attributes:
        name: What is written to the table.
    """

    name: str

    def read(self) -> Reading:
        """Return the values of this moment."""


def merged(readings: Iterable[Reading]) -> Reading:
    """Return one reading of several: of each value the first that is there."""
    rows = list(readings)
    values = {name: [value for row in rows if (value := getattr(row, name)) is not None] for name in FIELDS}
    return Reading(**{name: present[0] for name, present in values.items() if present})
