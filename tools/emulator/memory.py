"""Memory that checks itself: every byte knows whether it is there, whether anybody wrote it, and who was last.

Global memory, LDS and scratch are each a `Store`. What is recorded is kept in units of the smallest access that a
program makes, so that two waves may write the two halves of a word and no time is spent on single bytes where nobody
does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .errors import MemoryFault, Race
from .waves import Array, Waves

# Far from zero and from each other: an address that lost its upper half hits nothing.
_BASE: Final = 0x7F3200000000
_GAP: Final = 4096
_NOBODY: Final = -1
_SEVERAL: Final = -2


@dataclass(frozen=True)
class Lanes:
    """The lanes that take part in an access, one after the other.

    Attributes:
        index: Place of the lane's wave among those that run.
        lane: Its place in the wave.
        wave: Number of the wave in the launch.
        group: Number of its workgroup.
        epoch: Barriers that the wave has passed.
    """

    index: Array
    lane: Array
    wave: Array
    group: Array
    epoch: Array

    @classmethod
    def active(cls, waves: Waves) -> Lanes:
        """Return the active lanes of waves."""
        index, lane = np.nonzero(waves.active)
        return cls(index, lane, waves.wave[index], waves.group[index], waves.epoch[index])

    def some(self, chosen: Array) -> Lanes:
        """Return those that are chosen."""
        return Lanes(*(each[chosen] for each in (self.index, self.lane, self.wave, self.group, self.epoch)))

    @classmethod
    def scalar(cls, waves: Waves) -> Lanes:
        """Return one for each wave: what a scalar load is."""
        index = np.arange(waves.count)
        return cls(index, index * 0, waves.wave, waves.group, waves.epoch)


class Store:
    """Bytes with their history.

    Attributes:
        data: The bytes.
        name: For messages.
    """

    def __init__(self, size: int, name: str, unit: int, group_of: Array | None = None) -> None:
        """Make a store in which nothing is accessible.

        Args:
            size: Bytes.
            name: For messages.
            unit: Bytes of the smallest access to come.
            group_of: Workgroup of each wave where several groups share it: no barrier is between them.
        """
        size = -(-size // 16) * 16
        self.name, self._unit, self._group_of = name, unit, group_of
        self.data = np.full(size, 0xA5, np.uint8)
        units = size // unit
        self._there = np.zeros(units, bool)
        self._written = np.zeros(units, bool)
        self._constant = np.zeros(units, bool)
        self._writer = np.full(units, _NOBODY, np.int32)
        self._reader = np.full(units, _NOBODY, np.int32)
        self._write_epoch = np.zeros(units, np.int32)
        self._read_epoch = np.zeros(units, np.int32)

    def allow(self, first: int, size: int, contents: bytes | None = None, constant: bool = False) -> None:
        """Make a range accessible: written if there are contents, only to be read if it is constant."""
        units = slice(first // self._unit, -(-(first + size) // self._unit))
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
            self._remember_readers(units, lanes)
        return self._gather(offset, size)

    def write(self, offset: Array, values: Array, lanes: Lanes) -> None:
        """Write rows of bytes at offsets.

        Raises:
            MemoryFault: Outside, or into what is only to be read.
            Race: Where another wave wrote something else or reads, with no barrier between.
        """
        size = values.shape[1]
        units = self._units(offset, size, "writes")
        if self._constant[units].any():
            which = int(np.argmax(self._constant[units].any(axis=1)))
            raise MemoryFault(f"writes {self._at(offset[which])}, which is only to be read")
        self._meet(units, self._reader, self._read_epoch, lanes, "writes", "read")
        # Waves that hold the same value may both write it: compilers let them.
        changed = (self._gather(offset, size) != values).any(axis=1)[:, None]
        self._meet(units, self._writer, self._write_epoch, lanes, "writes", "written", changed)
        self._scatter(offset, values)
        lost = (self._gather(offset, size) != values).any(axis=1)
        if lost.any():
            self._explain(offset, lanes, lost)
        self._written[units] = True
        self._writer[units] = lanes.wave[:, None]
        self._write_epoch[units] = lanes.epoch[:, None]

    def add(self, offset: Array, size: int, lanes: Lanes) -> None:
        """Check an atomic access: it must be inside and of bytes that somebody has written, and cannot race."""
        units = self._units(offset, size, "changes")
        if not self._written[units].all():
            raise MemoryFault(f"changes {self._at(offset[0])} or others, which nobody has written")

    def _explain(self, offset: Array, lanes: Lanes, lost: Array) -> None:
        """Raise where lanes of two waves wrote different values at once; those of one wave may."""
        for index in np.flatnonzero(lost):
            others = np.unique(lanes.wave[offset == offset[index]])
            if len(others) > 1:
                both = f"waves {others[0]} and {others[1]}"
                raise Race(f"{both} write {self._at(offset[index])} with no barrier between")

    def _remember_readers(self, units: Array, lanes: Lanes) -> None:
        wave = np.broadcast_to(lanes.wave[:, None], units.shape)
        before = self._reader[units]
        alone = (self._read_epoch[units] != lanes.epoch[:, None]) | (before == _NOBODY) | (before == wave)
        self._reader[units] = np.where(alone, wave, _SEVERAL)
        # Of lanes of two waves at one address the last was recorded: look again.
        mixed = alone & (self._reader[units] != wave)
        if mixed.any():
            self._reader[units[mixed]] = _SEVERAL
        self._read_epoch[units] = lanes.epoch[:, None]

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
            unordered |= (last == _SEVERAL) | (self._group_of[last] != lanes.group[:, None])
        clash &= unordered
        if clash.any():
            row, unit = (int(index[0]) for index in np.nonzero(clash))
            other = f"wave {last[row, unit]}" if last[row, unit] >= 0 else "other waves"
            at = self._at(units[row, unit] * self._unit)
            raise Race(f"wave {lanes.wave[row]} {does} {at}, {did} by {other}, with no barrier between")

    def _at(self, offset: Any) -> str:
        return f"{self.name}{int(offset):+#x}"

    def _units(self, offset: Array, size: int, does: str) -> Array:
        """Return the units that accesses touch: lanes x units."""
        across = int((offset % self._unit).any())  # one unit more
        units = offset[:, None] // self._unit + np.arange(-(-size // self._unit) + across)
        units = np.minimum(units, (offset[:, None] + size - 1) // self._unit)
        outside = (offset < 0) | (offset + size > len(self.data))
        if outside.any():
            units = np.where(outside[:, None], 0, units)
        there = self._there[units].all(axis=1) & ~outside
        if not there.all():
            raise MemoryFault(f"out of bounds: {does} {size} bytes at {self._at(offset[int(np.argmin(there))])}")
        return units

    def _gather(self, offset: Array, size: int) -> Array:
        words = self._words(offset, size)
        if words is None:
            return self.data[offset[:, None] + np.arange(size)]
        view, places = words
        return view[places].view(np.uint8).reshape(len(offset), size)

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


class Parts:
    """A store of equal parts that nobody else may touch: the LDS of each group, the scratch of each lane."""

    def __init__(self, name: str, size: int, count: int, unit: int) -> None:
        """Make them.

        Args:
            name: For messages.
            size: Bytes of each.
            count: How many there are.
            unit: Bytes of the smallest access to come.
        """
        self._size, self._pitch = size, -(-size // 16) * 16 + 16
        self.store = Store(self._pitch * count, name, unit)
        for part in range(count):
            self.store.allow(part * self._pitch, size)

    def offset(self, part: Array, local: Array, bytes_: int) -> Array:
        """Return where accesses inside parts lie in the store.

        Raises:
            MemoryFault: One leaves its part.
        """
        outside = (local < 0) | (local + bytes_ > self._size)
        if outside.any():
            at = f"{self.store.name}{int(local[np.argmax(outside)]):+#x}"
            raise MemoryFault(f"out of bounds: {bytes_} bytes at {at} of {self._size} bytes")
        return part.astype(np.int64) * self._pitch + local


@dataclass(frozen=True)
class Buffer:
    """A buffer of global memory."""

    name: str
    address: int
    size: int


class Memory:
    """Global memory: buffers far apart, and nothing between them. It takes part in one launch."""

    def __init__(self) -> None:
        self._contents: list[tuple[int, int, bytes | None, bool]] = []
        self._size = _GAP
        self._store: Store | None = None

    def add(self, name: str, contents: npt.NDArray[Any] | int, constant: bool = False) -> Buffer:
        """Add a buffer.

        Args:
            name: For messages.
            contents: Its contents, or a number of bytes that nobody has written.
            constant: Whether writing it is an error.
        """
        raw = None if isinstance(contents, int) else np.ascontiguousarray(contents).tobytes()
        size = contents if isinstance(contents, int) else len(raw or b"")
        offset = -(-self._size // 256) * 256
        self._contents.append((offset, size, raw, constant))
        self._size = offset + size + _GAP
        return Buffer(name, _BASE + offset, size)

    def seal(self, unit: int, group_of: Array) -> None:
        """Make the memory of what has been added; a launch does."""
        if self._store is not None:
            raise ValueError("this memory has taken part in a launch: make a new one")
        self._store = Store(self._size, "global memory", unit, group_of)
        for offset, size, raw, constant in self._contents:
            self._store.allow(offset, size, raw, constant)

    @property
    def store(self) -> Store:
        """The bytes, once sealed."""
        if self._store is None:
            raise ValueError("this memory has not taken part in a launch")
        return self._store

    def offset(self, address: Array) -> Array:
        """Return addresses as offsets into the store."""
        offsets: Array = (address - np.uint64(_BASE)).view(np.int64)
        # Far outside is outside: sums with a size must not overflow.
        return np.clip(offsets, -(1 << 40), 1 << 40)

    def contents(self, buffer: Buffer, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a buffer's contents after a launch."""
        first = buffer.address - _BASE
        return self.store.data[first : first + buffer.size].view(dtype).copy()

    def written(self, buffer: Buffer, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return for each element of a buffer whether it was written, or had contents before."""
        flags = self.store.written(buffer.address - _BASE, buffer.size)
        return np.asarray(flags.reshape(-1, np.dtype(dtype).itemsize).all(axis=1))
