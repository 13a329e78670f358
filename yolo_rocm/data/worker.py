"""The loop of one loading worker: a request comes, a batch goes, until the other end closes."""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import sys
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import _utils as torch_loader
from torch.utils.data import default_collate

from . import interrupts
from .batch_images import BatchImages
from .reader import BatchReader, Request
from .shared_lists import Packed
from .stack_file import StackFile
from .transport import HAS_MEMFD, Ring, receive, send

_LOOK_AFTER_PARENT: Final = 2.0  # seconds
# Segments beyond those of the batches that wait: the one being read, the consumer's, the one its loop variable still
# holds, and one whose release is on its way.
_IN_USE: Final = 4


def failure(place: str) -> ExceptionWrapper:
    """Wrap the error being handled as torch's own loader does: it arrives as its own type, with its traceback."""
    return ExceptionWrapper(where=place)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class WorkerConfig:
    """What is sent to a worker when it starts.

    Attributes:
        number: Which worker it is.
        workers: How many there are.
        prefetch: Batches that may wait for the training process.
        base_seed: Seed of the pool; a worker's own is this plus its number, as with torch's DataLoader.
        init: Called with the worker's number before the first batch.
        stacks: Where the worker writes its stacks when a batch takes longer than `patience`.
        patience: Seconds for one batch; 0 never writes.
    """

    number: int
    workers: int
    prefetch: int
    base_seed: int
    init: Callable[[int], None] | None
    stacks: StackFile
    patience: float


def run_worker(connection: Connection, packed: Packed, config: WorkerConfig) -> None:
    """Serve requests until the training process closes the connection, then leave without the interpreter's exit.

    The exit would tear the interpreter down while library threads run: torch 2.10 then aborts ("terminate called
    without an active exception") when such a thread asks for the lock of an interpreter that is gone.
    """
    interrupts.ignore()
    code = 0
    try:
        _serve(connection, packed.unpack(), config)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the training process went away
    except BaseException as error:
        code = 1
        if isinstance(error, Exception):
            send(connection, failure(f"in loading worker {config.number}, as it started"))
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _serve(connection: Connection, reader: BatchReader, config: WorkerConfig) -> None:
    ring = Ring(config.prefetch + _IN_USE)
    if reader.stacks_images and HAS_MEMFD:
        reader.images = BatchImages(ring)
    _settle(reader, config)
    with reader.attached():
        send(connection, "ready")
        requests = _Requests(connection, ring)
        while (request := requests.next()) is not None:
            with _watched(config):
                try:
                    batch, trace, stack = reader.read(request)
                except Exception:
                    place = f"in loading worker {config.number}, reading {reader.reading or 'a batch'}"
                    send(connection, failure(place))
                    continue
            send(connection, (batch, trace), stack, ring.take_dropped())
            del batch, stack


class _Requests:
    """What the training process asks for; each request also tells which segments of the ring are free again."""

    def __init__(self, connection: Connection, ring: Ring) -> None:
        self._connection, self._ring, self._parent = connection, ring, parent_process()
        self._waiting: deque[Request | None] = deque()

    def next(self) -> Request | None:
        """Return the next request, or None to end. All that have come are read, for what they say of the ring.

        While it waits it looks whether the parent is alive: forked workers hold each other's connections open.
        """
        while not self._waiting or self._connection.poll(0):
            if not self._connection.poll(_LOOK_AFTER_PARENT):
                if self._parent is not None and not self._parent.is_alive():
                    raise EOFError("the training process is gone")
                continue
            request, released = receive(self._connection)
            self._ring.give_back(released)
            if request is None:
                return None
            self._waiting.append(request)
        return self._waiting.popleft()


def _settle(reader: BatchReader, config: WorkerConfig) -> None:
    """Seed this worker as torch's own loader does, so that batches are the same as with it."""
    torch.set_num_threads(1)
    seed = config.base_seed + config.number
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(torch_loader.worker._generate_state(config.base_seed, config.number))  # type: ignore[no-untyped-call]
    torch_loader.worker._worker_info = torch_loader.worker.WorkerInfo(
        id=config.number, num_workers=config.workers, seed=seed, dataset=reader.dataset
    )
    if reader.collate is default_collate:
        reader.collate = _collate_in_place
    if config.init is not None:
        config.init(config.number)
    gc.freeze()  # what is here now stays: no collection needs to look at it again


def _collate_in_place(samples: list[Any]) -> Any:
    """Collate without torch's shared memory, which is limited to /dev/shm; the batch is shared when it is sent."""
    info, torch_loader.worker._worker_info = torch_loader.worker._worker_info, None
    try:
        return default_collate(samples)
    finally:
        torch_loader.worker._worker_info = info


@contextmanager
def _watched(config: WorkerConfig) -> Any:
    """Write every thread's stack to a file if a batch takes longer than the worker's patience."""
    file = config.stacks.emptied() if config.patience > 0 else None
    if file is None:
        yield
        return
    faulthandler.dump_traceback_later(config.patience, file=file)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
