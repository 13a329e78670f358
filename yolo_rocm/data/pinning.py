"""Batches in pinned memory: whether (only where there is a GPU, it works, and it fits), and the thread that does it."""

from __future__ import annotations

import platform
import queue
import threading
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.utils.data._utils.pin_memory import pin_memory as pin

from ..utils.error_text import first_line
from . import resources

# Pinned pages cannot be swapped; beyond this share of the free memory they starve the rest of the system, and AMD's
# driver stalls when they run out (ComfyUI#14525).
SHARE: Final = 0.1
# Batches that are pinned at one time: two wait, one is being copied, one is being used.
IN_FLIGHT: Final = 4


def decide_pinning(asked: bool | str, caller: bool, batch_bytes: int) -> tuple[bool, str]:
    """Return whether to pin, and a line for the user where the answer is not what was wanted.

    Args:
        asked: True or False by the preset or the user, or `auto`.
        caller: What whoever builds the loader wanted; `auto` never pins where that is False.
        batch_bytes: Bytes of one batch; 0 if unknown.
    """
    if asked is False or (asked == "auto" and not caller):
        return False, ""
    if not torch.cuda.is_available():
        return False, ""
    if asked == "auto":
        if "microsoft" in platform.release().lower():
            return False, "memory is not pinned: WSL gives little of it"
        free = resources.ram_available()
        if free is not None and IN_FLIGHT * batch_bytes > SHARE * free:
            need = IN_FLIGHT * batch_bytes / 2**30
            return False, f"memory is not pinned: {need:.1f} GB of batches are more than a tenth of what is free"
    problem = probe(batch_bytes or 1 << 20)
    return problem == "", problem


def probe(nbytes: int) -> str:
    """Try to pin one batch; return why it does not work, or nothing."""
    try:
        torch.empty(nbytes, dtype=torch.uint8).pin_memory()
    except RuntimeError as error:
        return f"memory is not pinned: {first_line(error)}"
    return ""


class Pinner:
    """A stage: a thread that copies batches into pinned memory, two ahead.

    Args:
        items: Batches with their traces.
        stop: Set by `close`; whoever reads the items returns then, also from a wait.
    """

    def __init__(self, items: Iterator[Any], stop: threading.Event) -> None:
        self._items, self._stop = items, stop
        self._ready: queue.Queue[Any] = queue.Queue(maxsize=2)
        device = torch.cuda.current_device()
        self._thread = threading.Thread(target=self._run, args=(device,), name="loader-pin", daemon=True)
        self._thread.start()

    def _run(self, device: int) -> None:
        torch.cuda.set_device(device)
        torch.set_num_threads(1)
        while not self._stop.is_set():
            result = self._next_pinned()
            self._put(result)
            if isinstance(result, BaseException):
                return

    def _next_pinned(self) -> Any:
        """Return the next item, or the error or StopIteration in its place."""
        try:
            batch, trace = next(self._items)
            return pin(batch), trace  # type: ignore[no-untyped-call]
        except BaseException as error:
            return error

    def _put(self, result: Any) -> None:
        while not self._stop.is_set():
            try:
                self._ready.put(result, timeout=0.1)
                return
            except queue.Full:
                continue

    def __iter__(self) -> Iterator[Any]:
        """Return itself."""
        return self

    def __next__(self) -> Any:
        """Return the next batch in pinned memory, with its trace."""
        result = self._ready.get()
        if isinstance(result, BaseException):
            self._ready.put(StopIteration())  # for whoever asks again: the thread has ended
            raise result
        return result

    def close(self) -> None:
        """End the thread, however long its batch takes: nobody else may read the items before that."""
        self._stop.set()
        self._thread.join()
