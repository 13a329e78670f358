"""Memory that checks itself: global memory, LDS and scratch, each a `Store` or parts of one."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .errors import MemoryFault
from .store import Store
from .waves import Array

# Buffers are far apart, each with a multiple of 4 GiB in the middle of it: an address that lost its upper half, or a
# carry into it, hits nothing.
_BASE: Final = 0x7F3200000000
_LOG_APART: Final = 36
_GAP: Final = 256  # bytes around each buffer that belong to nobody
_NOWHERE: Final = -(1 << 40)


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
        self._buffers: list[tuple[Buffer, bytes | None, bool]] = []
        self._size = _GAP
        self._places: list[int] = []  # of the buffers in the store
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
        # Kernels may count on a multiple of 16.
        buffer = Buffer(name, _BASE + (len(self._buffers) << _LOG_APART) - size // 32 * 16, size)
        self._buffers.append((buffer, raw, constant))
        self._places.append(self._size)
        self._size = -(-(self._size + size + 2 * _GAP) // 16) * 16
        return buffer

    def seal(self, unit: int, group_of: Array, late: Set[tuple[int, int]] = frozenset()) -> None:
        """Make the memory of what has been added; a launch does."""
        if self._store is not None:
            raise ValueError("this memory has taken part in a launch: make a new one")
        self._store = Store(self._size, "global memory", unit, group_of, late, self._named)
        for (buffer, raw, constant), place in zip(self._buffers, self._places, strict=True):
            self._store.allow(place, buffer.size, raw, constant)
        self._first = np.array([buffer.address - _BASE for buffer, _, _ in self._buffers])
        self._sizes = np.array([buffer.size for buffer, _, _ in self._buffers])
        self._place = np.array(self._places)

    @property
    def store(self) -> Store:
        """The bytes, once sealed."""
        if self._store is None:
            raise ValueError("this memory has not taken part in a launch")
        return self._store

    def offset(self, address: Array) -> Array:
        """Return addresses as offsets into the store, one far outside for those near no buffer."""
        far: Array = (address - np.uint64(_BASE)).view(np.int64)
        number = (far + (1 << _LOG_APART - 1)) >> _LOG_APART
        known = (number >= 0) & (number < len(self._buffers))
        number = np.where(known, number, 0)
        inside = far - self._first[number]
        near = known & (inside >= -_GAP) & (inside < self._sizes[number] + _GAP)
        return np.where(near, inside + self._place[number], _NOWHERE)

    def _named(self, offset: int) -> str:
        if offset == _NOWHERE:
            return "an address that is near no buffer"
        number = max(0, int(np.searchsorted(self._place - _GAP, offset, "right")) - 1)
        buffer = self._buffers[number][0]
        return f"{buffer.name}{offset - self._places[number]:+#x} (of {buffer.size:#x} bytes)"

    def _start(self, buffer: Buffer) -> int:
        return self._places[[each for each, _, _ in self._buffers].index(buffer)]

    def contents(self, buffer: Buffer, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a buffer's contents after a launch."""
        first = self._start(buffer)
        found: Array = self.store.data[first : first + buffer.size].view(dtype).copy()
        return found

    def written(self, buffer: Buffer, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return for each element of a buffer whether it was written, or had contents before."""
        flags = self.store.written(self._start(buffer), buffer.size)
        return np.asarray(flags.reshape(-1, np.dtype(dtype).itemsize).all(axis=1))
