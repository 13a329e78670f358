"""The next batch on its way to the device while the current one is being worked on."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

SMALL_CARD_GB = 8.0
"""Cards with no more memory than this get no prefetch by default."""
_ROUNDING_GB = 0.5  # an 8 GB card may report a little more or less
_SMALL = (
    1 << 20
)  # torch's allocator serves tensors up to this size from shared blocks; they need no buffer of their own
_END = object()
_PLAIN = (str, int, float, bytes, bool, type(None))


def prefetch_default(vram_gb: float | None, asked: bool | None) -> tuple[bool, str]:
    """Say whether to prefetch to the device, and why.

    Args:
        vram_gb: Memory of the card in GiB; None where there is none or it is unknown.
        asked: What the user set; None for no word.
    """
    if asked is not None:
        return asked, "asked for" if asked else "switched off by the user"
    if vram_gb is None:
        return False, "off: the memory of the card is unknown; ask for prefetch to have it"
    if vram_gb < SMALL_CARD_GB + _ROUNDING_GB:
        return False, (
            f"off: up to three more batches would lie in the card's {vram_gb:.0f} GB; "
            f"on by default above {SMALL_CARD_GB:.0f} GB, or when asked for"
        )
    return True, f"on: the card has {vram_gb:.0f} GB, more than {SMALL_CARD_GB:.0f}"


class DevicePrefetcher:
    """Batches of an iterable, copied to the device one ahead of their use.

    While the consumer works on a batch, the next one is fetched, copied on a side stream, and changed by `transform` on
    that stream. Tensors above 1 MB go into buffers that are used over and over and grow only for a larger batch. A
    buffer is written to again only when every tensor and every slice that lies in it is gone, and only after the work
    that the consumer's stream had been given by then: what is kept of a batch stays as it was, and costs another
    buffer. In a plain loop there are three buffers: for the next batch, for the current one, and for the one that the
    loop variable still holds when the next is asked for.

    On a CPU device batches pass through, transformed.

    Args:
        batches: Anything to iterate over; each iteration over the prefetcher is one over it. Tensors are found inside
            dicts, lists and tuples; every other value is handed on as it is.
        device: Where to.
        transform: Called with the batch on the device, on the side stream; returns the batch to hand on. What it
            has to know about a batch can travel inside it.
        pin: Copy pageable tensors to pinned memory first. Without it their copy makes the host wait for the work
            already given to the device, which undoes the prefetch.
    """

    def __init__(
        self,
        batches: Iterable[Any],
        device: torch.device | str,
        transform: Callable[[Any], Any] | None = None,
        *,
        pin: bool = True,
    ) -> None:
        self.batches = batches
        self.device = torch.device(device)
        self.transform = transform
        self.pin = pin

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        if self.device.type != "cuda":
            return self._through()
        if self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        return self._ahead(_SideStream(self.device))

    def _through(self) -> Iterator[Any]:
        with _closing(iter(self.batches)) as source:
            for batch in source:
                moved = _mapped(batch, lambda tensor, _: tensor.to(self.device))
                yield self.transform(moved) if self.transform else moved

    def _ahead(self, side: _SideStream) -> Iterator[Any]:
        buffers = _Buffers(self.device)
        with _closing(iter(self.batches)) as source:
            try:
                following = self._send(source, side, buffers)
                while following is not None:
                    current = following
                    if current.error is not None:
                        raise current.error
                    # Before the current batch is handed out: the consumer may wait for the device while it has it.
                    following = self._send(source, side, buffers)
                    side.hand_over(current)
                    batch = current.batch
                    del current
                    yield batch
                    del batch  # or its buffers would count as kept
            finally:
                # No copy may outlive the host memory it reads from, which the source is about to free.
                side.drain()

    def _send(self, source: Iterator[Any], side: _SideStream, buffers: _Buffers) -> _Sent | None:
        """Fetch a batch and start it on its way; an error is kept until the batch is asked for."""
        try:
            host = next(source, _END)
            if host is _END:
                return None
            with side.after_consumer():
                tensors: list[Tensor] = []

                def copied(tensor: Tensor, path: tuple[Any, ...]) -> Tensor:
                    tensors.append(self._copied(tensor, path, buffers))
                    return tensors[-1]

                batch = _mapped(host, copied)
                if self.transform is not None:
                    batch = self.transform(batch)
                    tensors.clear()
                    _mapped(batch, lambda tensor, _: tensors.append(tensor) or tensor)  # type: ignore[func-returns-value]
                return _Sent(batch, side.mark(host), tensors=tensors)
        except Exception as error:
            return _Sent(error=error)

    def _copied(self, tensor: Tensor, path: tuple[Any, ...], buffers: _Buffers) -> Tensor:
        if tensor.device.type == "cpu" and self.device.type == "cuda" and self.pin and not tensor.is_pinned():
            tensor = tensor.pin_memory()
        size = tensor.numel() * tensor.element_size()
        if tensor.device == self.device or size <= _SMALL or not tensor.is_contiguous():
            return tensor.to(self.device, non_blocking=True)
        return buffers.lend(path, tensor).copy_(tensor, non_blocking=True)


@dataclass
class _Sent:
    """A batch on its way, or the error that came in its place."""

    batch: Any = None
    arrived: Any = None  # torch.cuda.Event
    error: Exception | None = None
    tensors: list[Tensor] = field(default_factory=list)


class _SideStream:
    """A stream beside the consumer's, and what ties the two together."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._reading: list[tuple[Any, Any]] = []

    @contextlib.contextmanager
    def after_consumer(self) -> Iterator[None]:
        """Put work on this stream, behind all that the consumer's stream has been given so far."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.no_grad(), torch.cuda.device(self.device), torch.cuda.stream(self.stream):
            yield

    def mark(self, host: Any) -> Any:
        """Return an event behind the work so far, and keep the host's batch until it has been read."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self.stream)  # type: ignore[no-untyped-call]
        self._reading = [(done, kept) for done, kept in self._reading if not done.query()]
        self._reading.append((event, host))
        return event

    def hand_over(self, sent: _Sent) -> None:
        """Let the consumer's stream, which is the current one, use a batch."""
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(sent.arrived)
        for tensor in sent.tensors:
            # The allocator must not give freed memory back to the side stream while the consumer's still reads it.
            if tensor.is_cuda:
                tensor.record_stream(stream)
        sent.tensors.clear()  # or their buffers would count as in use

    def drain(self) -> None:
        """Wait for the work of this stream and let go of the host's batches."""
        self.stream.synchronize()
        self._reading.clear()


class _Buffers:
    """Device memory by the place of a tensor in its batch, lent again once the tensors that lie in it are gone."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.held: dict[tuple[Any, ...], list[_Buffer]] = {}

    def lend(self, path: tuple[Any, ...], like: Tensor) -> Tensor:
        """Return memory of the shape and type of `like`."""
        size = like.numel() * like.element_size()
        own = self.held.setdefault(path, [])
        buffer = next((one for one in own if one.free), None)
        if buffer is None or buffer.memory.numel() < size:
            if buffer is not None:
                own.remove(buffer)
            buffer = _Buffer(torch.empty(size, dtype=torch.uint8, device=self.device))
            own.append(buffer)
        return buffer.lend(size).view(like.dtype).view(like.shape)


class _Buffer:
    """Memory that is lent as a whole, to one tensor at a time and everything that is cut from it."""

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self._lent: StorageWeakRef | None = None

    @property
    def free(self) -> bool:
        """Whether nothing is left of what was lent."""
        return self._lent is None or self._lent.expired()  # type: ignore[no-untyped-call]

    def lend(self, size: int) -> Tensor:
        """Return the first bytes.

        By DLPack they are a tensor with a storage of its own, which lives as long as anything that is cut from it.
        """
        lent: Tensor = from_dlpack(to_dlpack(self.memory[:size]))
        storage: Any = lent.untyped_storage() if hasattr(lent, "untyped_storage") else lent.storage()  # type: ignore[no-untyped-call]
        self._lent = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        return lent


def _mapped(value: Any, change: Callable[[Tensor, tuple[Any, ...]], Any], path: tuple[Any, ...] = ()) -> Any:
    """Return `value` with the tensors in its dicts, lists and tuples changed; what holds none is kept as it is."""
    if isinstance(value, Tensor):
        return change(value, path)
    if isinstance(value, dict):
        changed = {key: _mapped(item, change, (*path, key)) for key, item in value.items()}
        if all(changed[key] is item for key, item in value.items()):
            return value
        result = copy.copy(value)
        result.update(changed)
        return result
    if isinstance(value, (list, tuple)):
        if not _may_hold_tensors(value):
            return value
        items = [_mapped(item, change, (*path, index)) for index, item in enumerate(value)]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _may_hold_tensors(items: list[Any] | tuple[Any, ...]) -> bool:
    """Tell quickly: names and shapes of a batch's images are long lists that are looked at for every batch."""
    return any(
        not (isinstance(item, _PLAIN) or (type(item) is tuple and all(isinstance(part, _PLAIN) for part in item)))
        for item in items
    )


@contextlib.contextmanager
def _closing(source: Iterator[Any]) -> Iterator[Iterator[Any]]:
    try:
        yield source
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()
