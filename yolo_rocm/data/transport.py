"""How a batch travels from a worker: one memory segment without a name, its descriptor, and a short pickle.

On Linux the segment is a `memfd`: a killed worker leaves nothing behind, and the size of /dev/shm does not limit it
(Docker gives 64 MB). Elsewhere torch's own way of sharing tensors is used.
"""

from __future__ import annotations

import errno
import io
import math
import os
import pickle
import socket
import weakref
from collections import deque
from collections.abc import Iterable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import torch

HAS_MEMFD: Final = hasattr(os, "memfd_create")
_LARGE: Final = 1 << 16  # smaller tensors are cheaper inside the pickle than in a segment
_ALIGN: Final = 64


class Segment:
    """Memory that another process can map by its descriptor."""

    def __init__(self, nbytes: int, descriptor: int | None = None) -> None:
        self.nbytes = nbytes
        self.number: int | None = None  # in a ring
        self.descriptor = os.memfd_create("yolo_rocm", os.MFD_CLOEXEC) if descriptor is None else descriptor
        try:
            if descriptor is None:
                os.ftruncate(self.descriptor, nbytes)
            # By torch rather than by mmap, which keeps a descriptor open for every batch that is still in use.
            name = f"/proc/self/fd/{self.descriptor}"
            self.bytes = torch.from_file(name, shared=True, size=nbytes, dtype=torch.uint8)
        except BaseException:
            self.close()
            raise

    def view(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor over a part of the segment; it keeps the memory alive."""
        return _view(self.bytes, offset, shape, dtype)

    def close(self) -> None:
        """Give up the descriptor; mapped memory stays until its last tensor is gone."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _view(memory: torch.Tensor, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    count = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
    return memory[offset : offset + count].view(dtype).reshape(shape)


class Ring:
    """Segments of one worker, used again when the training process has let go of the batch in them.

    A new segment costs 10 ms for a batch of 16 images of 640 px (the kernel finds and clears 20 MB, page by page), one
    that is used again less than one. A batch may be in a larger segment than it needs: where shapes change, all of
    them grow to the largest batch, and no further ones are made.

    Args:
        limit: How many segments there may be. While a consumer keeps more batches than that, each further one is in a
            segment of its own, which is gone with it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._segments: dict[int, Segment] = {}
        self._free: list[int] = []
        self._dropped: list[int] = []
        self._next = 0

    def take(self, nbytes: int) -> Segment:
        """Return a segment that nobody uses, of at least that size."""
        self._free.sort(key=lambda number: self._segments[number].nbytes)
        for number in self._free:
            if self._segments[number].nbytes >= nbytes:
                self._free.remove(number)
                return self._segments[number]
        if self._free:  # all too small: a larger one takes the place of the smallest
            number = self._free.pop(0)
            self._segments.pop(number).close()
            self._dropped.append(number)
        segment = Segment(nbytes)
        if len(self._segments) < self._limit:
            segment.number = self._next
            self._segments[self._next] = segment
            self._next += 1
        return segment

    def give_back(self, numbers: Iterable[int]) -> None:
        """Count segments as unused."""
        self._free += numbers

    def take_dropped(self) -> tuple[int, ...]:
        """Return the numbers of segments that will never be used again, since the last call."""
        dropped, self._dropped = tuple(self._dropped), []
        return dropped


class Stack:
    """A batch's images, written into a segment one by one as they are made: no list of images, no second copy."""

    def __init__(self, count: int, first: torch.Tensor, ring: Ring) -> None:
        self._ring = ring
        self.segment = ring.take(max(1, count * _nbytes(first)))
        self.tensor = self.segment.view(0, (count, *first.shape), first.dtype)

    def abandon(self) -> None:
        """Give up the memory: nobody else will ever know of it."""
        if self.segment.number is not None:
            self._ring.give_back([self.segment.number])
        else:
            self.segment.close()


class Attachments:
    """The training process's side of a worker's ring: every segment is mapped once.

    Attributes:
        released: Numbers of segments whose batches are gone; the worker is told with the next request.
    """

    def __init__(self) -> None:
        self._segments: dict[int, Segment] = {}
        self.released: deque[int] = deque()

    def attach(self, number: int, nbytes: int, descriptor: int | None) -> torch.Tensor:
        """Return the bytes of a segment; when the last tensor over them is gone, its number is released."""
        if descriptor is not None:
            self._segments[number] = Segment(nbytes, descriptor)
            self._segments[number].close()
        # torch tells nobody when the last tensor over some memory is gone; the array below all of them does.
        array = self._segments[number].bytes.numpy()
        weakref.finalize(array, self.released.append, number).atexit = False
        return torch.from_numpy(array)

    def drop(self, numbers: Iterable[int]) -> None:
        """Let go of segments that the worker will not use again."""
        for number in numbers:
            self._segments.pop(number, None)

    def close(self) -> None:
        """Let go of the segments; those of batches that are still in use stay until these are gone."""
        self._segments.clear()

    def take_released(self) -> tuple[int, ...]:
        """Return the numbers released since the last call."""
        return tuple(self.released.popleft() for _ in range(len(self.released)))


class _Pickler(ForkingPickler):
    """Pickles a message; large tensors are noted and left out."""

    def __init__(self, file: io.BytesIO, stack: Stack | None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._stacked = None if stack is None else stack.tensor
        self.large: list[torch.Tensor] = []
        self.has_stack = False

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor) or obj.device.type != "cpu" or type(obj) is not torch.Tensor:
            return None
        if obj.layout is not torch.strided or obj.requires_grad or obj.is_quantized:
            return None
        if obj is self._stacked:
            self.has_stack = True
            return "stack", 0, tuple(obj.shape), obj.dtype
        if _nbytes(obj) < _LARGE:
            # As bytes: numpy does not know every type (bfloat16).
            return "small", obj.reshape(-1).view(torch.uint8).numpy().copy(), tuple(obj.shape), obj.dtype
        self.large.append(obj)
        return "large", len(self.large) - 1, tuple(obj.shape), obj.dtype


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, memory: list[torch.Tensor], offsets: list[int]) -> None:
        super().__init__(file)
        self._memory, self._offsets = memory, offsets

    def persistent_load(self, pid: Any) -> torch.Tensor:
        kind, which, *rest = pid
        if kind == "small":
            return _view(torch.from_numpy(which), 0, *rest)
        memory, offset = (self._memory[0], 0) if kind == "stack" else (self._memory[-1], self._offsets[which])
        return _view(memory, offset, *rest)


def send(connection: Connection, message: Any, stack: Stack | None = None, dropped: tuple[int, ...] = ()) -> None:
    """Send a message; tensors in it travel in shared memory.

    Args:
        connection: Where to.
        message: Anything that can be pickled.
        stack: Images that are in a segment already. If they are not in the message after all, they are abandoned.
        dropped: Numbers of segments that the other side can let go of.
    """
    if not HAS_MEMFD:
        connection.send(message)
        return
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, stack)
    pickler.dump(message)
    segments, offsets = [], []
    if stack is not None and pickler.has_stack:
        segments.append(stack.segment)
    elif stack is not None:
        stack.abandon()
    if pickler.large:
        end = 0
        for tensor in pickler.large:
            offsets.append(end)
            end += -(-_nbytes(tensor) // _ALIGN) * _ALIGN
        rest = Segment(end)
        for tensor, offset in zip(pickler.large, offsets, strict=True):
            rest.view(offset, tuple(tensor.shape), tensor.dtype).copy_(tensor)
        segments.append(rest)
    # A segment of a ring has been sent before if its descriptor is closed: the other side has it mapped.
    described = [(segment.nbytes, segment.number, segment.descriptor >= 0) for segment in segments]
    descriptors = [segment.descriptor for segment in segments if segment.descriptor >= 0]
    try:
        if not descriptors:
            # In one piece: what a signal's handler raises between two pieces would leave half a message, and
            # the next one, which tells a worker to end, would be taken for the other half.
            connection.send_bytes(pickle.dumps((described, dropped, offsets, buffer.getvalue())))
        else:
            connection.send_bytes(pickle.dumps((described, dropped, offsets, None)))
            with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as wire:
                socket.send_fds(wire, [b"."], descriptors)  # descriptors cannot travel alone: one byte goes with them
            connection.send_bytes(buffer.getbuffer())
    finally:
        for segment in segments:
            segment.close()


def receive(connection: Connection, attachments: Attachments | None = None) -> Any:
    """Receive what `send` sent; batches from a ring need the attachments of their worker."""
    if not HAS_MEMFD:
        return connection.recv()
    described, dropped, offsets, body = pickle.loads(connection.recv_bytes())
    if attachments is not None:
        attachments.drop(dropped)
    descriptors = iter(_receive_descriptors(connection, sum(fresh for _, _, fresh in described)))
    memory = []
    for nbytes, number, fresh in described:
        descriptor = next(descriptors) if fresh else None
        if number is not None and attachments is not None:
            memory.append(attachments.attach(number, nbytes, descriptor))
        else:
            segment = Segment(nbytes, descriptor)
            segment.close()
            memory.append(segment.bytes)
    return _Unpickler(io.BytesIO(connection.recv_bytes() if body is None else body), memory, offsets).load()


def _receive_descriptors(connection: Connection, count: int) -> list[int]:
    if count == 0:
        return []
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        _, descriptors, flags, _ = socket.recv_fds(wire, 1, count)
    if flags & socket.MSG_CTRUNC:
        for descriptor in descriptors:
            os.close(descriptor)
        raise OSError(errno.EMFILE, "a batch was lost: too many files are open (`ulimit -n 65536` raises the limit)")
    return list(descriptors)
