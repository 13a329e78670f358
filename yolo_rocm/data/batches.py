"""The batches of one loader as an iterator: from a pool of workers or read in place, pinned, copied ahead, observed."""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import torch
from torch.utils.data._utils.pin_memory import pin_memory as pin

from .policy import LoaderPolicy
from .pool import Pool
from .preflight import check_before_start
from .reader import BatchReader, Request, Trace
from .shared_lists import Packed


class Source(Protocol):
    """Gives the next batch with its trace, or None at the end, or once `stop` is set while it waits."""

    def __call__(self, stop: threading.Event | None = None) -> tuple[Any, Trace] | None:
        """Return the next one."""


class Batches:
    """An iterator over batches; it owns the processes and threads that make them.

    Args:
        reader: Reads a batch.
        policy: How to load.
        workers: Number of worker processes; 0 reads in this process.
        prefetch: Batches each worker holds ready.
        base_seed: Seed of the workers.
        init: Called in each worker.
        pinned: Copy batches into pinned memory.
        device: Copy batches to this device ahead of time; None leaves that to the consumer.
        kind: What the batches are for, told to the observer.
        batch_bytes: Bytes of one batch in /dev/shm; 0 if unknown, or if batches do not go there.
    """

    def __init__(
        self,
        reader: BatchReader,
        policy: LoaderPolicy,
        *,
        workers: int,
        prefetch: int,
        base_seed: int,
        init: Callable[[int], None] | None,
        pinned: bool = False,
        device: torch.device | None = None,
        kind: str = "train",
        batch_bytes: int = 0,
    ) -> None:
        self._held, self._epoch = ExitStack(), ExitStack()
        self._observe, self._kind = policy.observe, kind
        self._seed = base_seed if policy.reproducible == "strict" else None
        self._pinned, self._device = pinned, device
        self._reader = reader
        self._asked = self._first = 0
        self._traces: deque[Trace] = deque()
        self._batches: Iterator[Any] = iter(())
        self.pool: Pool | None = None
        if workers == 0:
            self._held.enter_context(reader.attached())
            return
        lists = policy.adapter.lists(reader.dataset)
        needs_main = check_before_start(
            {"dataset": reader.dataset, "collate_fn": reader.collate, "worker_init_fn": init},
            method=policy.context,
            workers=workers,
            prefetch=prefetch,
            batch_bytes=batch_bytes,
            shared=lists.values(),
        )
        self.pool = Pool(
            Packed(reader, lists),
            policy,
            workers=workers,
            prefetch=prefetch,
            base_seed=base_seed,
            init=init,
            needs_main=needs_main,
        )
        self._held.callback(self.pool.close)

    def begin(self, indices: Iterator[Any]) -> None:
        """Begin to read batches, given as lists of indices; may be endless. What an earlier epoch left is dropped."""
        self._epoch.close()
        self._traces.clear()
        self._first = self._asked
        requests = self._requests(indices)
        source: Source
        if self.pool is None:
            source = functools.partial(_in_place, self._reader, requests)
        else:
            self.pool.feed(requests)
            source = self.pool.next
        if self._pinned:
            pinner = _Pinner(source)
            self._epoch.callback(pinner.close)
            source = pinner.next
        batches = self._from(source)
        self._epoch.callback(batches.close)
        self._batches = batches
        if self._device is not None:
            from .prefetch import DevicePrefetcher

            self._batches = iter(DevicePrefetcher(self._batches, self._device))
            self._epoch.callback(self._batches.close)  # type: ignore[attr-defined]

    def _requests(self, indices: Iterator[Any]) -> Iterator[Request]:
        for batch in indices:
            number = self._asked
            self._asked += 1
            yield Request(number, tuple(batch), self._seed)

    def _from(self, source: Source) -> Generator[Any, None, None]:
        while (answer := source()) is not None:
            batch, trace = answer
            if trace.number >= self._first:
                self._traces.append(trace)
                held = [batch]
                del batch, answer  # or this frame would keep the batch, and its memory from the worker, until the next
                yield held.pop()

    def __iter__(self) -> Iterator[Any]:
        """Return itself."""
        return self

    def __next__(self) -> Any:
        """Return the next batch."""
        asked = time.monotonic()
        try:
            batch = next(self._batches)
        except StopIteration:
            raise
        except BaseException:  # an error or Ctrl-C: no worker may outlive it
            self.close()
            raise
        trace = self._traces.popleft()
        if self._observe is not None:
            self._observe(self._kind, trace, asked, time.monotonic())
        return batch

    @property
    def _workers(self) -> list[Any]:
        """Processes of the workers, under the name torch's iterators have for them."""
        return [] if self.pool is None else self.pool.processes

    def close(self) -> None:
        """End workers and threads; safe to call twice."""
        with self._held:  # whatever ends the first of the two
            self._epoch.close()

    _shutdown_workers = close


def _in_place(
    reader: BatchReader, requests: Iterator[Request], stop: threading.Event | None = None
) -> tuple[Any, Trace] | None:
    """Read the next batch in this process."""
    request = next(requests, None)
    return None if request is None else reader.read(request)[:2]


class _Pinner:
    """A thread that copies batches into pinned memory, two ahead."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ready: queue.Queue[Any] = queue.Queue(maxsize=2)
        self._stop = threading.Event()
        device = torch.cuda.current_device()
        self._thread = threading.Thread(target=self._run, args=(device,), name="loader-pin", daemon=True)
        self._thread.start()

    def _run(self, device: int) -> None:
        torch.cuda.set_device(device)
        torch.set_num_threads(1)
        while not self._stop.is_set():
            item: Any
            try:
                answer = self._source(self._stop)
                item = answer and (pin(answer[0]), answer[1])  # type: ignore[no-untyped-call]
            except BaseException as error:
                item = error
            self._put(item)
            if item is None or isinstance(item, BaseException):
                return

    def _put(self, item: Any) -> None:
        while not self._stop.is_set():
            try:
                self._ready.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def next(self, stop: threading.Event | None = None) -> Any:
        """Return the next pinned batch with its trace, or None at the end."""
        item = self._ready.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """End the thread, however long its batch takes: nobody else may read from the source before that."""
        self._stop.set()
        self._thread.join()
