"""The next batch on its way to the device while the current one is being worked on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

SMALL_CARD_GB = 8.0
"""Cards with no more memory than this get no prefetch by default."""
_ROUNDING_GB = 0.5  # an 8 GB card may report a little more or less
_END = object()


def prefetch_default(vram_gb: float | None, asked: bool | None) -> tuple[bool, str]:
    """Decide whether to prefetch to the device, and why.

    Args:
        vram_gb: Memory of the card in GiB; None where there is none or it is unknown.
        asked: What the user set; None for no word.
    """
    if asked is not None:
        return asked, "asked for" if asked else "off: the user says so"
    if vram_gb is None:
        return False, "off: the memory of the card is unknown; ask for prefetch to have it"
    if vram_gb < SMALL_CARD_GB + _ROUNDING_GB:
        return False, (
            f"off: up to three more batches would be in the card's {vram_gb:.0f} GB; "
            f"on by default above {SMALL_CARD_GB:.0f} GB, or when asked for"
        )
    return True, f"on: the card has {vram_gb:.0f} GB, more than {SMALL_CARD_GB:.0f}"


class DevicePrefetcher:
    """Batches of an iterable, copied to the device one ahead of their use.

    While the consumer works on a batch, the next one is fetched and copied on a side stream. That stream first waits
    for all work that the consumer's stream has been given, so that torch's allocator may use the memory of a batch
    again as soon as the consumer has let go of it; what is kept of a batch, or cut from it, stays as it was. In a plain
    loop there are three batches on the device: the next one, the current one, and the one that the loop variable still
    holds when the next is asked for.

    On a CPU device batches pass through.

    Args:
        batches: Anything to iterate over; each iteration over the prefetcher is one over it. Tensors are found inside
            dicts, lists and tuples; every other value is handed on as it is.
        device: Where to.
    """

    def __init__(self, batches: Iterable[Any], device: torch.device | str) -> None:
        self.batches = batches
        self.device = torch.device(device)

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        source = iter(self.batches)
        try:
            if self.device.type == "cuda":
                yield from self._ahead(source)
            else:
                for batch in source:
                    yield _mapped(batch, lambda tensor: tensor.to(self.device))
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()

    def _ahead(self, source: Iterator[Any]) -> Iterator[Any]:
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        try:
            following = self._send(source, side)
            while following is not None:
                held, arrived, error = following
                if error is not None:
                    raise error
                # Before the current batch is handed out: the consumer may wait for the device while it has it.
                following = self._send(source, side)
                torch.cuda.current_stream(self.device).wait_event(arrived)
                yield held.pop()
        finally:
            side.synchronize()  # no copy may outlive the host memory it reads from, which the source is about to free

    def _send(self, source: Iterator[Any], side: Any) -> tuple[list[Any], Any, Exception | None] | None:
        """Fetch a batch and start it on its way; an error is kept until the batch is asked for."""
        try:
            host = next(source, _END)
            if host is _END:
                return None
            side.wait_stream(torch.cuda.current_stream(self.device))
            with torch.no_grad(), torch.cuda.stream(side):
                batch = _mapped(host, self._copied)
            return [batch], side.record_event(), None
        except Exception as error:
            return [], None, error

    def _copied(self, tensor: Tensor) -> Tensor:
        if tensor.device.type == "cpu" and not tensor.is_pinned():
            # The copy of pageable memory makes the host wait for the work already given to the device.
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return `value` with the tensors in its dicts, lists and tuples changed; what holds none is kept as it is."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        changed = {key: _mapped(item, change) for key, item in value.items()}
        if all(changed[key] is item for key, item in value.items()):
            return value
        result = copy.copy(value)
        result.update(changed)
        return result
    if isinstance(value, (list, tuple)):
        items = [_mapped(item, change) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
