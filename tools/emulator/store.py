"""Bytes with their history: whether each is there, whether anybody wrote it, and who was last.

What is recorded is kept in units of the smallest access that a program makes, so that two waves may write the two
halves of a word and no time is spent on single bytes where nobody does.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from .errors import MemoryFault, Race
from .waves import Array, Waves

# Who was at an address: a wave; nobody; several waves, of several groups, or of the group `_SEVERAL_OF - who`.
_NOBODY: Final = -1
_SEVERAL: Final = -2
_SEVERAL_OF: Final = -3
# What is recorded for each unit.
_RECORDS: Final = ("_there", "_written", "_constant", "_writer", "_reader", "_write_epoch", "_read_epoch")


@dataclass(frozen=True)
class Lanes:
    """The lanes that take part in an access, one after the other.

    Attributes:
        index: Place of the lane's wave among those that run.
        lane: Its place in the wave.
        wave: Number of the wave in the launch.
        group: Number of its workgroup.
        epoch: Barriers that the wave has passed: it comes after what others did before them.
        signalled: Barriers that it has signalled or passed: others come after what it did before them.
    """

    index: Array
    lane: Array
    wave: Array
    group: Array
    epoch: Array
    signalled: Array

    @classmethod
    def active(cls, waves: Waves) -> Lanes:
        """Return the active lanes of waves."""
        index, lane = np.nonzero(waves.active)
        epoch = waves.epoch[index]
        return cls(index, lane, waves.wave[index], waves.group[index], epoch, epoch + waves.signalled[index])

    def some(self, chosen: Array) -> Lanes:
        """Return those that are chosen."""
        return Lanes(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @classmethod
    def scalar(cls, waves: Waves) -> Lanes:
        """Return one for each wave: what a scalar load is."""
        index = np.arange(waves.count)
        return cls(index, index * 0, waves.wave, waves.group, waves.epoch, waves.epoch + waves.signalled)


class Store:
    """Bytes with their history.

    Attributes:
        data: The bytes.
        name: For messages.
    """

    def __init__(
        self,
        size: int,
        name: str,
        unit: int,
        group_of: Array | None = None,
        late: Set[tuple[int, int]] = frozenset(),
        named: Callable[[int], str] | None = None,
    ) -> None:
        """Make a store in which nothing is accessible.

        Args:
            size: Bytes.
            name: For messages.
            unit: Bytes of the smallest access to come.
            group_of: Workgroup of each wave where several groups share it: no barrier is between them.
            late: Waves and barriers (by number) that they reached with stores that had not been waited for.
            named: Names an offset, for messages.
        """
        size = -(-size // 16) * 16
        self.name, self._unit, self._group_of, self._late = name, unit, group_of, late
        self._named = named or (lambda offset: f"{name}{offset:+#x}")
        self.data = np.full(size, 0xA5, np.uint8)
        units = size // unit
        self._there = np.zeros(units, bool)
        self._written = np.zeros(units, bool)
        self._constant = np.zeros(units, bool)
        self._writer = np.full(units, _NOBODY, np.int32)
        self._reader = np.full(units, _NOBODY, np.int32)
        self._write_epoch = np.zeros(units, np.int32)
        self._read_epoch = np.zeros(units, np.int32)
        self._allowed: list[tuple[int, int, bool, bool]] = []

    def allow(self, first: int, size: int, contents: bytes | None = None, constant: bool = False) -> None:
        """Make a range accessible: written if there are contents, only to be read if it is constant."""
        # What is left of a unit at the end is out of reach: every access takes at least a whole one.
        self._allowed.append((first, size, constant, contents is not None))
        units = slice(first // self._unit, (first + size) // self._unit)
        self._there[units], self._constant[units] = True, constant
        if contents is not None:
            self.data[first : first + size] = np.frombuffer(contents, np.uint8)
            self._written[units] = True

    def written(self, first: int, size: int) -> Array:
        """Return for each byte of a range whether somebody has written it."""
        start = first // self._unit
        units = self._written[start : -(-(first + size) // self._unit)]
        return np.repeat(units, self._unit)[first - start * self._unit :][:size]

    def read(self, offset: Array, size: int, lanes: Lanes) -> Array:
        """Return `size` bytes at each offset: lanes x bytes.

        Raises:
            MemoryFault: Outside, or of bytes that nobody has written.
            Race: Of what another wave has written with no barrier since.
        """
        units = self._units(offset, size, "reads")
        if not self._constant[units].all():
            written = self._written[units].all(axis=1)
            if not written.all():
                which = int(np.argmin(written))
                raise MemoryFault(f"reads {self._at(offset[which])}, which nobody has written")
            self._meet(units, self._writer, self._write_epoch, lanes, "reads", "written")
            self._remember(self._reader, self._read_epoch, units, lanes)
        return self._gather(offset, size)

    def write(self, offset: Array, values: Array, lanes: Lanes) -> None:
        """Write rows of bytes at offsets.

        Raises:
            MemoryFault: Outside, or into what is only to be read.
            Race: Where another wave wrote something else or reads, with no barrier between.
        """
        size = values.shape[1]
        units = self._units(offset, size, "writes")
        constant = self._constant[units].any(axis=1)
        if constant.any():
            raise MemoryFault(f"writes {self._at(offset[int(np.argmax(constant))])}, which is only to be read")
        self._meet(units, self._reader, self._read_epoch, lanes, "writes", "read")
        # Waves that hold the same value may both write it: compilers let them.
        changed = (self._gather(offset, size) != values).reshape(len(offset), units.shape[1], -1).any(axis=2)
        self._meet(units, self._writer, self._write_epoch, lanes, "writes", "written", changed)
        self._scatter(offset, values)
        lost = (self._gather(offset, size) != values).any(axis=1)
        if lost.any():
            self._explain(offset, size, lanes, lost)
        self._written[units] = True
        self._writer[units] = lanes.wave[:, None]
        self._write_epoch[units] = lanes.signalled[:, None]

    def _explain(self, offset: Array, size: int, lanes: Lanes, lost: Array) -> None:
        """Raise where lanes wrote different values to the same bytes at once."""
        index = int(np.argmax(lost))
        overlapping = np.abs(offset - offset[index]) < size
        others = np.unique(lanes.wave[overlapping])
        who = f"waves {others[0]} and {others[1]}" if len(others) > 1 else f"lanes of wave {others[0]}"
        raise Race(f"{who} write {self._at(offset[index])} with no barrier between")

    def _groups(self, who: Array) -> Array:
        """Return the group of those who were at addresses, -1 for nobody and for several groups."""
        if self._group_of is None:
            return np.zeros(who.shape, np.int64)
        one: Array = np.where(who >= 0, self._group_of[np.maximum(who, 0)], _SEVERAL_OF - who)
        return np.where((who == _NOBODY) | (who == _SEVERAL), -1, one)

    def _remember(self, who: Array, when: Array, units: Array, lanes: Lanes) -> None:
        """Record who was at units: the wave, or that there were several with no barrier between."""
        own = np.broadcast_to(lanes.wave[:, None], units.shape)
        before, groups = who[units], self._groups(own)
        earlier = (when[units] < lanes.epoch[:, None]) & (self._groups(before) == groups)
        alone = (before == _NOBODY) | (before == own) | earlier
        several = np.where(self._groups(before) == groups, _SEVERAL_OF - groups, _SEVERAL)
        who[units] = np.where(alone, own, several)
        # Of lanes of two waves at one address the last was recorded: look again, those of two groups last.
        mixed = alone & (who[units] != own)
        if mixed.any():
            apart = mixed & (self._groups(who[units]) != groups)
            who[units[mixed]] = _SEVERAL_OF - groups[mixed]
            who[units[apart]] = _SEVERAL
        when[units] = np.maximum(when[units], lanes.signalled[:, None])

    def _meet(
        self, units: Array, who: Array, when: Array, lanes: Lanes, does: str, did: str, where: Array | None = None
    ) -> None:
        """Check that no other wave touched the same bytes since the last barrier."""
        last, own = who[units], lanes.wave[:, None]
        clash = (last != _NOBODY) & (last != own)
        if where is not None:
            clash &= where
        if not clash.any():
            return
        unordered = when[units] >= lanes.epoch[:, None]
        if self._group_of is not None:
            unordered |= self._groups(last) != lanes.group[:, None]
        if self._late and who is self._writer:
            for row, unit in zip(*np.nonzero(clash & ~unordered), strict=True):
                barriers = range(when[units[row, unit]], lanes.epoch[row])
                unordered[row, unit] = all((last[row, unit], barrier) in self._late for barrier in barriers)
        clash &= unordered
        if clash.any():
            row, unit = (int(index[0]) for index in np.nonzero(clash))
            other = f"wave {last[row, unit]}" if last[row, unit] >= 0 else "other waves"
            at = self._at(units[row, unit] * self._unit)
            between = "no barrier, or a store that was not waited for before it," if self._late else "no barrier"
            raise Race(f"wave {lanes.wave[row]} {does} {at}, {did} by {other}, with {between} between")

    def _refine(self) -> None:
        """Keep what is recorded for every byte from now on: an access is not aligned to the units."""
        before = self._unit
        for name in _RECORDS:
            setattr(self, name, np.repeat(getattr(self, name), self._unit))
        self._unit = 1
        for first, size, constant, written in self._allowed:
            end = slice((first + size) // before * before, first + size)  # what was no whole unit
            self._there[end], self._constant[end], self._written[end] = True, constant, written

    def _at(self, offset: Any) -> str:
        return self._named(int(offset))

    def _units(self, offset: Array, size: int, does: str) -> Array:
        """Return the units that accesses touch: lanes x units."""
        if self._unit > 1 and (offset % self._unit).any():
            self._refine()
        units = offset[:, None] // self._unit + np.arange(size // self._unit)
        outside = (offset < 0) | (offset + size > len(self.data))
        if outside.any():
            units = np.where(outside[:, None], 0, units)
        there = self._there[units].all(axis=1) & ~outside
        if not there.all():
            raise MemoryFault(f"out of bounds: {does} {size} bytes at {self._at(offset[int(np.argmin(there))])}")
        return np.asarray(units)

    def _gather(self, offset: Array, size: int) -> Array:
        words = self._words(offset, size)
        if words is None:
            found: Array = self.data[offset[:, None] + np.arange(size)]
        else:
            view, places = words
            found = view[places].view(np.uint8).reshape(len(offset), size)
        return found

    def _scatter(self, offset: Array, values: Array) -> None:
        words = self._words(offset, values.shape[1])
        if words is None:
            self.data[offset[:, None] + np.arange(values.shape[1])] = values
        else:
            view, places = words
            view[places] = np.ascontiguousarray(values).view(view.dtype)

    def _words(self, offset: Array, size: int) -> tuple[Array, Array] | None:
        """Return the bytes as words that the accesses are made of, and which; None for unaligned ones."""
        width = min(size & -size, 8)
        if width == 1 or (offset % width).any():
            width = 4
            if size % width or (offset % width).any():
                return None
        return self.data.view(f"u{width}"), offset[:, None] // width + np.arange(size // width)
