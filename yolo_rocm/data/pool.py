"""A pool of loading workers that answers in order, notices a dead or stuck worker at once, and replaces a dead one."""

from __future__ import annotations

import pickle
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from torch._utils import ExceptionWrapper

from ..errors import LoaderError
from ..utils.child_process import ending
from .policy import LoaderPolicy
from .reader import Request, Trace
from .shared_lists import Packed
from .stack_file import StackFile
from .transport import Attachments, receive, send
from .worker import WorkerConfig
from .worker_start import start_process, start_server

MAX_REPLACEMENTS: Final = 3
_GRACE: Final = 0.3  # seconds a worker has to leave by itself
_LOOK: Final = 0.1  # seconds between two looks whether to stop waiting
# By the exit code of a worker: signals as POSIX has them.
_REMEDIES: Final = {
    -9: "The kernel does that when memory runs out (`dmesg | grep -i oom`): use fewer workers or a smaller batch.",
    -11: "A library crashed while it read an image: look for a damaged file, or update opencv-python.",
}


@dataclass
class _Worker:
    process: Any
    connection: Connection
    config: WorkerConfig
    ready: bool = False
    pending: deque[Request] = field(default_factory=deque)
    attachments: Attachments = field(default_factory=Attachments)


class Pool:
    """Workers that read batches in the order of their requests, round robin as torch's DataLoader does.

    Args:
        packed: The reader, packed once for all workers.
        policy: How workers start, how long to wait for a batch, and who is told of a worker that was replaced.
        workers: How many processes.
        prefetch: Requests each worker holds.
        base_seed: See `WorkerConfig`.
        init: See `WorkerConfig`.
        needs_main: Workers have to import the user's script.
    """

    def __init__(
        self,
        packed: Packed,
        policy: LoaderPolicy,
        *,
        workers: int,
        prefetch: int,
        base_seed: int,
        init: Callable[[int], None] | None,
        needs_main: bool,
    ) -> None:
        self._packed, self._prefetch = packed, prefetch
        self._requests: Iterator[Request] = iter(())
        self._policy, self._context, self._needs_main = policy, policy.context, needs_main
        patience = 0.8 * policy.timeout  # the stacks must be there when the training process looks for them
        self._workers: list[_Worker] = []
        self._close = weakref.finalize(self, _close, self._workers)
        self._order: deque[_Worker] = deque()
        self.replaced = 0
        try:
            if self._context == "forkserver" and (problem := start_server(self._policy.modules)):
                self._policy.tell(f"the fork server cannot start ({problem}): workers are spawned, which takes longer")
                self._context = "spawn"
            for number in range(workers):
                config = WorkerConfig(number, workers, prefetch, base_seed, init, StackFile(), patience)
                self._workers.append(self._start(config))
        except BaseException:
            self.close()
            raise

    def feed(self, requests: Iterator[Request]) -> None:
        """Give the pool batches to read; answers to earlier requests still come first."""
        self._requests = requests
        for _ in range(self._prefetch):
            for worker in self._workers:
                if len(worker.pending) < self._prefetch:
                    self._ask(worker)

    @property
    def processes(self) -> list[Any]:
        """Process objects of the workers."""
        return [worker.process for worker in self._workers]

    def _start(self, config: WorkerConfig) -> _Worker:
        try:
            process, connection = start_process(
                self._context, self._packed, config, self._policy.modules, self._needs_main
            )
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise LoaderError(f"what a loading worker needs cannot be sent to it: {error}") from error
        return _Worker(process, connection, config)

    def _ask(self, worker: _Worker) -> None:
        request = next(self._requests, None)
        if request is None:
            return
        worker.pending.append(request)
        self._order.append(worker)
        with suppress(OSError):  # a dead worker is noticed, and replaced, when its answer is due
            send(worker.connection, (request, worker.attachments.take_released()))

    def next(self, stop: threading.Event | None = None) -> tuple[Any, Trace] | None:
        """Return the next batch with its trace, or None at the end.

        Args:
            stop: Set by another thread to end the waiting: None is returned, and the batch is the next call's.

        Raises:
            LoaderError: A worker is stuck, or died for the fourth time.
            Exception: What the data set raised in a worker.
        """
        if not self._order:
            return None
        worker = self._order[0]
        started = time.monotonic()
        while True:
            try:
                answer = self._answer(worker, started, stop)
            except (EOFError, OSError) as error:
                if stop is not None and stop.is_set():
                    return None  # whoever set it is closing the connections
                self._replace(worker, error)
                started = time.monotonic()
            else:
                if answer != "ready":
                    break
                worker.ready = True
        if answer is None:
            return None
        if isinstance(answer, ExceptionWrapper):
            answer.reraise()  # type: ignore[no-untyped-call]
        worker.pending.popleft()
        self._order.popleft()
        self._ask(worker)
        batch, trace = answer
        return batch, trace

    def _answer(self, worker: _Worker, started: float, stop: threading.Event | None) -> Any:
        while True:
            left = None if self._policy.timeout <= 0 else max(0.0, self._policy.timeout - (time.monotonic() - started))
            look = left if stop is None else _LOOK if left is None else min(_LOOK, left)
            ready = wait([worker.connection, worker.process.sentinel], look)
            if stop is not None and stop.is_set():
                return None
            if worker.connection in ready:
                return receive(worker.connection, worker.attachments)
            if ready:
                raise EOFError("the process ended")
            if look == left:
                raise LoaderError(self._describe_stuck(worker))

    def _describe_stuck(self, worker: _Worker) -> str:
        samples = ", ".join(map(str, worker.pending[0].indices))
        doing = f"it is reading samples {samples}" if worker.ready else "it is still starting"
        stacks = worker.config.stacks.text() or "its stack is above, if it wrote one"
        return (
            f"loading worker {worker.config.number} (pid {worker.process.pid}) gave no batch for "
            f"{self._policy.timeout:g} s; {doing}. If the disk is only slow, raise the loader's timeout (seconds; 0 "
            f"waits without limit). It was here:\n{stacks}"
        )

    def _replace(self, worker: _Worker, error: Exception) -> None:
        """Start a worker in the place of a dead one and give it the same requests again."""
        worker.process.join(5)  # it has let go of its connection, so it is about to end; how, decides
        code = worker.process.exitcode
        how = f"broke its connection ({type(error).__name__})" if code is None else ending(code)
        why = f"loading worker {worker.config.number} (pid {worker.process.pid}) {how}"
        remedy = _REMEDIES.get(code, "If it happens again, load without workers to see the error itself.")
        if not worker.ready and code == 1:
            raise LoaderError(f"{why}; it could not start, its error is above.") from error
        if self.replaced >= MAX_REPLACEMENTS:
            raise LoaderError(f"{why}, after {self.replaced} others had been replaced. {remedy}") from error
        self.replaced += 1
        self._policy.tell(
            f"{why}; started another one, {len(worker.pending)} batches are read again "
            f"({self.replaced} of {MAX_REPLACEMENTS} replacements). {remedy}"
        )
        _end([worker], grace=0)
        fresh = self._start(worker.config)
        worker.process, worker.connection, worker.ready = fresh.process, fresh.connection, False
        worker.attachments = fresh.attachments
        for request in worker.pending:
            send(worker.connection, (request, ()))

    def close(self) -> None:
        """End the workers; safe to call twice. What Ctrl-C cuts short here is finished when the process ends."""
        self._order.clear()
        _close(self._workers)
        self._close.detach()


def _close(workers: list[_Worker]) -> None:
    _end(workers, _GRACE)
    for worker in workers:
        worker.config.stacks.close()
    workers.clear()


def _end(workers: list[_Worker], grace: float) -> None:
    """Ask workers to leave, and make those that are busy."""
    try:
        for worker in workers:
            with suppress(OSError, ValueError):
                send(worker.connection, (None, ()))
        until = time.monotonic() + grace
        for worker in workers:
            with suppress(ValueError):  # closed already, by a call that was cut short
                worker.process.join(max(0.0, until - time.monotonic()))
    finally:  # also after a second Ctrl-C, or the workers would stay
        for worker in workers:
            with suppress(ValueError):
                if worker.process.is_alive():
                    worker.process.kill()
    for worker in workers:
        with suppress(ValueError):
            worker.process.join(5)
        worker.attachments.close()
        with suppress(OSError):
            worker.connection.close()
        with suppress(ValueError):
            worker.process.close()
