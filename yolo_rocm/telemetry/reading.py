"""The values of one moment, and what a source of them is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final, Protocol

MIB: Final = 2**20


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
