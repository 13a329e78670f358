"""A data set for many workers: its long lists are in memory that all of them share, the rest is pickled."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import numpy as np
import torch

from .transport import HAS_MEMFD, Segment

_SHORT: Final = 64  # below this a list is cheaper pickled


class FreshDict(dict[Any, Any]):
    """A dictionary that nobody else has: who wants a deep copy, to change it, may have it as it is."""

    def __deepcopy__(self, memo: dict[int, Any]) -> FreshDict:
        return self


class SharedList(Sequence[Any]):
    """A list that cannot be changed, kept as bytes in one block of memory.

    Pickling it to another process hands over the block, not the items. Every access makes a new object, so nobody can
    change an item for others.
    """

    def __init__(self, items: Sequence[Any]) -> None:
        chunks = [pickle.dumps(item, pickle.HIGHEST_PROTOCOL) for item in items]
        self._count = len(chunks)
        ends = np.cumsum([0, *map(len, chunks)], dtype=np.int64)
        self._segment = _allocate(ends.nbytes + int(ends[-1]))
        block = self._block()
        block[: ends.nbytes] = ends.view(np.uint8)
        data = block[ends.nbytes :]
        for i in range(self._count):
            data[ends[i] : ends[i + 1]] = np.frombuffer(chunks[i], np.uint8)
            chunks[i] = b""  # all images of a data set are not held twice

    def _block(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        tensor = self._segment.bytes if isinstance(self._segment, Segment) else self._segment
        return tensor.numpy()

    def __len__(self) -> int:
        """Return the number of items."""
        return self._count

    def __getitem__(self, index: Any) -> Any:
        """Make the item, or a list of items for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        position = range(self._count)[index]
        block = self._block()
        start, end = block[position * 8 : position * 8 + 16].view(np.int64) + 8 * (self._count + 1)
        item = pickle.loads(block[start:end].tobytes())
        return FreshDict(item) if type(item) is dict else item

    def __iter__(self) -> Iterator[Any]:
        """Make the items one after the other."""
        return (self[i] for i in range(self._count))

    def __getstate__(self) -> dict[str, Any]:
        """Hand over the memory by its descriptor, where the system can; else by torch."""
        state = dict(self.__dict__)
        if isinstance(self._segment, Segment):
            state["_segment"] = (reduction.DupFd(self._segment.descriptor), self._segment.nbytes)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the memory; the descriptor is kept only by the process that made the list."""
        self.__dict__.update(state)
        if isinstance(self._segment, tuple):
            descriptor, nbytes = self._segment
            self._segment = Segment(nbytes, descriptor.detach())
            self._segment.close()

    def __del__(self) -> None:
        """Give up the descriptor."""
        segment = self.__dict__.get("_segment")
        if isinstance(segment, Segment):
            segment.close()


def _allocate(nbytes: int) -> Any:
    return Segment(nbytes) if HAS_MEMFD else torch.empty(nbytes, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]


class Packed:
    """An object whose named long lists travel as `SharedList`; everything that refers to them sees the shared ones.

    Args:
        value: What to pack.
        lists: Lists inside it, by a name for each; they are found by identity wherever they are referred to.
    """

    def __init__(self, value: Any, lists: Mapping[str, Sequence[Any]] | None = None) -> None:
        self._value = value
        self._lists = {name: items for name, items in (lists or {}).items() if len(items) >= _SHORT}
        self._shared: dict[str, SharedList] = {}

    def _dump(self) -> bytes:
        buffer = io.BytesIO()
        _PackedPickler(buffer, {id(items): name for name, items in self._lists.items()}).dump(self._value)
        return buffer.getvalue()

    def unpack(self) -> Any:
        """Return the object."""
        return self._value

    def __reduce__(self) -> Any:
        if not self._shared:  # once, however many workers start
            self._shared = {name: SharedList(items) for name, items in self._lists.items()}
        return _unpack, (self._dump(), self._shared)


class _PackedPickler(ForkingPickler):
    def __init__(self, file: io.BytesIO, names: dict[int, str]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._names = names

    def persistent_id(self, obj: Any) -> Any:
        return self._names.get(id(obj)) if type(obj) is list else None


class _PackedUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: dict[str, SharedList]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: Any) -> SharedList:
        return self._shared[pid]


def _unpack(data: bytes, shared: dict[str, SharedList]) -> Packed:
    return Packed(_PackedUnpickler(io.BytesIO(data), shared).load())
