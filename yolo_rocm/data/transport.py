"""How a batch travels from a worker: one memory segment without a name, its descriptor, and a short pickle.

On Linux the segment is a `memfd`: a killed worker leaves nothing behind, and the size of /dev/shm does not limit it
(Docker gives 64 MB). Elsewhere torch's own way of sharing tensors is used.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import socket
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
        count = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
        return self.bytes[offset : offset + count].view(dtype).reshape(shape)

    def close(self) -> None:
        """Give up the descriptor; mapped memory stays until its last tensor is gone."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Stack:
    """A batch's images, written into a segment one by one as they are made: no list of images, no second copy."""

    def __init__(self, count: int, first: torch.Tensor) -> None:
        self.segment = Segment(max(1, count * first.numel() * first.element_size()))
        self.tensor = self.segment.view(0, (count, *first.shape), first.dtype)


class _Pickler(ForkingPickler):
    """Pickles a message; large tensors are noted and left out."""

    def __init__(self, file: io.BytesIO, stacks: dict[int, Segment]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._stacks = stacks
        self.large: list[torch.Tensor] = []
        self.ready: list[Segment] = []

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor) or obj.device.type != "cpu" or type(obj) is not torch.Tensor:
            return None
        if obj.layout is not torch.strided or obj.requires_grad or obj.is_quantized:
            return None
        segment = self._stacks.get(obj.data_ptr())
        if segment is not None and obj.is_contiguous() and obj.numel() * obj.element_size() == segment.nbytes:
            self.ready.append(segment)
            return "ready", len(self.ready) - 1, tuple(obj.shape), obj.dtype
        if obj.numel() * obj.element_size() < _LARGE:
            return "small", obj.numpy().copy() if obj.dtype is not torch.bfloat16 else obj.tolist(), obj.dtype
        self.large.append(obj)
        return "large", len(self.large) - 1, tuple(obj.shape), obj.dtype


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, segments: list[Segment], offsets: list[int]) -> None:
        super().__init__(file)
        self._segments, self._offsets = segments, offsets

    def persistent_load(self, pid: Any) -> torch.Tensor:
        kind, which, *rest = pid
        if kind == "small":
            small: torch.Tensor = torch.as_tensor(which, dtype=rest[0])
            return small
        segment, offset = (self._segments[which], 0) if kind == "ready" else (self._segments[-1], self._offsets[which])
        return segment.view(offset, *rest)


def send(connection: Connection, message: Any, stacks: tuple[Stack, ...] = ()) -> None:
    """Send a message; tensors in it travel in shared memory."""
    if not HAS_MEMFD:
        connection.send(message)
        return
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, {stack.tensor.data_ptr(): stack.segment for stack in stacks})
    pickler.dump(message)
    segments, offsets = list(pickler.ready), []
    if pickler.large:
        end = 0
        for tensor in pickler.large:
            offsets.append(end)
            end += -(-tensor.numel() * tensor.element_size() // _ALIGN) * _ALIGN
        rest = Segment(end)
        for tensor, offset in zip(pickler.large, offsets, strict=True):
            rest.view(offset, tuple(tensor.shape), tensor.dtype).copy_(tensor)
        segments.append(rest)
    header = pickle.dumps(([segment.nbytes for segment in segments], offsets))
    try:
        connection.send_bytes(header)
        if segments:
            _send_descriptors(connection, [segment.descriptor for segment in segments])
        connection.send_bytes(buffer.getbuffer())
    finally:
        for segment in (*segments, *(stack.segment for stack in stacks)):
            segment.close()


def receive(connection: Connection) -> Any:
    """Receive what `send` sent."""
    if not HAS_MEMFD:
        return connection.recv()
    sizes, offsets = pickle.loads(connection.recv_bytes())
    descriptors = _receive_descriptors(connection, len(sizes)) if sizes else []
    segments = [Segment(size, descriptor) for size, descriptor in zip(sizes, descriptors, strict=True)]
    try:
        return _Unpickler(io.BytesIO(connection.recv_bytes()), segments, offsets).load()
    finally:
        for segment in segments:
            segment.close()


def _send_descriptors(connection: Connection, descriptors: list[int]) -> None:
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        # A descriptor cannot travel alone: one byte goes with it.
        socket.send_fds(wire, [b"."], descriptors)


def _receive_descriptors(connection: Connection, count: int) -> list[int]:
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        _, descriptors, flags, _ = socket.recv_fds(wire, 1, count)
    if len(descriptors) != count or flags & socket.MSG_CTRUNC:
        for descriptor in descriptors:
            os.close(descriptor)
        raise OSError(
            f"{count} descriptors were sent and {len(descriptors)} arrived: too many files are open. "
            "Raise the limit (`ulimit -n 65536`) or lower loader.workers or loader.prefetch."
        )
    return list(descriptors)
