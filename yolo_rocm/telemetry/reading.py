"""The values of one moment, and what a source of them is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import ClassVar, Final

MIB: Final = 2**20
# What no card and no host ever shows is a broken sensor or a file of something else: a gap, not a number.
_PLAUSIBLE: Final = {
    "busy_percent": (0.0, 100.0),
    "temperature_c": (-50.0, 200.0),
    "power_w": (0.0, 5000.0),
    "host_cpu_percent": (0.0, 100.0),
    "own_cpu_percent": (0.0, 100.0),
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
        host_cpu_percent: Busy share of all processors of the host since the last look.
        host_memory_mb: Memory of the host in use, MiB.
        own_cpu_percent: The part of `host_cpu_percent` that is this process and those it has started.
    """

    busy_percent: float | None = None
    vram_used_mb: float | None = None
    vram_total_mb: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    torch_reserved_mb: float | None = None
    host_cpu_percent: float | None = None
    host_memory_mb: float | None = None
    own_cpu_percent: float | None = None

    def plausible(self) -> Reading:
        """Return the reading without values that cannot be."""
        kept = {}
        for name in FIELDS:
            value = getattr(self, name)
            low, high = _PLAUSIBLE.get(name, _ANY_SIZE)
            # A NaN fails both comparisons.
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            kept[name] = float(value) if is_number and low <= value <= high else None
        used, total = kept["vram_used_mb"], kept["vram_total_mb"]
        if total is not None and (total == 0 or (used is not None and used > total)):
            kept["vram_used_mb"] = kept["vram_total_mb"] = None
        return Reading(**kept)

    @property
    def missing(self) -> frozenset[str]:
        """Names of the values that are gaps."""
        return frozenset(name for name in FIELDS if getattr(self, name) is None)


FIELDS: Final = tuple(field.name for field in fields(Reading))
OF_THE_CARD: Final = frozenset(FIELDS[:5])


class Source(ABC):
    """Something that can be read again and again, from one thread; `read` may raise or block.

    Attributes:
        name: What is written to the table.
    """

    name: ClassVar[str]

    def why_not(self) -> str | None:
        """Return why it cannot be used here; None where it can."""
        return None

    @abstractmethod
    def read(self) -> Reading:
        """Return the values of this moment."""

    def close(self) -> None:
        """Release what it holds open."""
        return


def merged(readings: Iterable[Reading]) -> Reading:
    """Return one reading of several: of each value the first that is there."""
    rows = list(readings)
    known = {name: [value for row in rows if (value := getattr(row, name)) is not None] for name in FIELDS}
    return Reading(**{name: values[0] for name, values in known.items() if values})
