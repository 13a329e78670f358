"""The next batch on its way to the device while the current one is being worked on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SMALL_CARD_GB = 8.0
"""Cards with no more memory than this get no prefetch by default."""
_ROUNDING_GB = 0.5  # an 8 GB card may report a little more or less


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
                item = _mapped(host, self._copied)
            return _Sent(item, self._side.record_event())
        except StopIteration:
            return _Sent(error=StopIteration())  # the one that came would keep the caller's frame, and the last batch
        except Exception as error:
            return _Sent(error=error)

    def _copied(self, tensor: Tensor) -> Tensor:
        if tensor.device.type == "cpu" and not tensor.is_pinned():
            # The copy of pageable memory makes the host wait for the work already given to the device.
            tensor = tensor.pin_memory()
        return tensor.to(self._device, non_blocking=True)

    def close(self) -> None:
        """Wait for copies: none may outlive the host memory it reads from, which is about to be free."""
        self._following = None
        self._side.synchronize()


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
