"""The next batch on its way to the device while the current one is being worked on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

SMALL_CARD_GB: Final = 8.0
"""Cards with no more memory than this get no prefetch by default."""
_ROUNDING_GB: Final = 0.5  # an 8 GB card may report a little more or less


def prefetches_by_default(vram_gb: float) -> bool:
    """Return whether a card has room for up to three more batches."""
    return vram_gb >= SMALL_CARD_GB + _ROUNDING_GB


@dataclass
class _Sent:
    """An item on its way, and the event that says it has arrived; or what came in its place."""

    item: Any = None
    arrived: Any = None
    error: Exception | None = None


class DevicePrefetcher:
    """A stage: batches copied to a GPU one ahead of their use.

    While the consumer works on a batch, the next one is fetched and copied on a side stream. That stream first waits
    for all work that the consumer's stream has been given, so that torch's allocator may use the memory of a batch
    again as soon as the consumer has let go of it; what is kept of a batch, or cut from it, stays as it was. In a plain
    loop there are three batches on the device: the next one, the current one, and the one that the loop variable still
    holds when the next is asked for.

    Args:
        items: Anything; tensors are looked for inside dicts, lists and tuples, every other value is handed on as it is.
        device: Where to.
    """

    def __init__(self, items: Iterator[Any], device: torch.device) -> None:
        self._items, self._device = items, device
        self._side: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._following: _Sent | None = None

    def __iter__(self) -> Iterator[Any]:
        """Return itself."""
        return self

    def __next__(self) -> Any:
        """Return the next item, on the device; an error comes when its item is due."""
        sent = self._following or self._send()
        if sent.error is not None:
            self._following = _Sent(error=StopIteration())
            raise sent.error
        # Before the current batch is handed out: the consumer may wait for the device while it has it.
        self._following = self._send()
        torch.cuda.current_stream(self._device).wait_event(sent.arrived)
        return sent.item

    def _send(self) -> _Sent:
        try:
            host = next(self._items)
            self._side.wait_stream(torch.cuda.current_stream(self._device))
            with torch.no_grad(), torch.cuda.stream(self._side):
                item = tree_map(self._copied, host)
            return _Sent(item, self._side.record_event())
        except StopIteration:
            return _Sent(error=StopIteration())  # the one that came would keep the caller's frame, and the last batch
        except Exception as error:
            return _Sent(error=error)

    def _copied(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.device.type == "cpu" and not value.is_pinned():
            # The copy of pageable memory makes the host wait for the work already given to the device.
            value = value.pin_memory()
        return value.to(self._device, non_blocking=True)

    def close(self) -> None:
        """Wait for copies: none may outlive the host memory it reads from, which is about to be free."""
        self._following = None
        self._side.synchronize()
