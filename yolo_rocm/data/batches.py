"""The way of batches from a data set to its consumer, stage by stage: read, pinned, copied to the device, observed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from .pinning import Pinner
from .policy import LoaderPolicy
from .pool import Pool
from .prefetch import DevicePrefetcher
from .preflight import check_before_start
from .reader import BatchReader, Request, Trace
from .shared_lists import Packed

Item = tuple[Any, Trace]
"""What goes from stage to stage: a batch, and its trace."""


class Batches:
    """An iterator over batches; it owns the processes and threads that make them.

    A stage is an iterator over items that takes them from the one before; `begin` lines them up. None of them is a
    generator: its frame would keep a batch, and its memory from the worker, until the next one is asked for.

    Args:
        reader: Reads a batch.
        policy: How to load.
        workers: Number of worker processes; 0 reads in this process.
        prefetch: Batches each worker holds ready.
        base_seed: Seed of the workers.
        init: Called in each worker.
        pinned: Copy batches into pinned memory.
        device: Copy batches to this GPU ahead of time; None leaves that to the consumer.
        kind: What the batches are for, told to the observer.
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
    ) -> None:
        self._resources, self._epoch = ExitStack(), ExitStack()
        self._observe, self._kind = policy.observe, kind
        self._seed = base_seed if policy.reproducible == "strict" else None
        self._pinned, self._device = pinned, device
        self._reader = reader
        self._number = 0  # of the next request
        self._items: Iterator[Item] = iter(())
        self.pool: Pool | None = None
        if workers == 0:
            self._resources.enter_context(reader.attached())
            return
        lists = policy.adapter.lists(reader.dataset)
        parts = {"dataset": reader.dataset, "collate_fn": reader.collate, "worker_init_fn": init}
        needs_main = check_before_start(parts, method=policy.context, shared=lists.values())
        self.pool = Pool(
            Packed(reader, lists),
            policy,
            workers=workers,
            prefetch=prefetch,
            base_seed=base_seed,
            init=init,
            needs_main=needs_main,
        )
        self._resources.callback(self.pool.close)

    def begin(self, indices: Iterator[Any]) -> None:
        """Begin to read batches, given as lists of indices; may be endless. What an earlier epoch left is dropped."""
        self._epoch.close()
        first = self._number
        stop = threading.Event() if self._pinned else None
        items: Iterator[Item] = filter(lambda item: item[1].number >= first, self._read(self._requests(indices), stop))
        if stop is not None:
            pinner = Pinner(items, stop)
            self._epoch.callback(pinner.close)
            items = pinner
        if self._device is not None:
            prefetcher = DevicePrefetcher(items, self._device)
            self._epoch.callback(prefetcher.close)
            items = prefetcher
        self._items = items

    def _requests(self, indices: Iterator[Any]) -> Iterator[Request]:
        for batch in indices:
            number = self._number
            self._number += 1
            yield Request(number, tuple(batch), self._seed)

    def _read(self, requests: Iterator[Request], stop: threading.Event | None) -> Iterator[Item]:
        """Read in the workers, which begin at once, or in this process when a batch is asked for."""
        if self.pool is None:
            return map(lambda request: self._reader.read(request)[:2], requests)
        self.pool.feed(requests)
        return iter(partial(self.pool.next, stop), None)

    def __iter__(self) -> Iterator[Any]:
        """Return itself."""
        return self

    def __next__(self) -> Any:
        """Return the next batch."""
        asked = time.monotonic()
        try:
            batch, trace = next(self._items)
        except StopIteration:
            raise
        except BaseException:  # an error or Ctrl-C: no worker may outlive it
            self.close()
            raise
        if self._observe is not None:
            self._observe(self._kind, trace, asked, time.monotonic())
        return batch

    @property
    def _workers(self) -> list[Any]:
        """Processes of the workers, under the name torch's iterators have for them."""
        return [] if self.pool is None else self.pool.processes

    def close(self) -> None:
        """End workers and threads; safe to call twice."""
        self._items = iter(())
        with self._resources:  # whatever ends the first of the two
            self._epoch.close()
