"""Starts worker processes: light, without running the user's script again, and ahead of time where asked."""

from __future__ import annotations

import atexit
import io
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import context as contexts
from multiprocessing import reduction, resource_tracker, spawn, util
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from . import interrupts
from .preflight import references_main
from .shared_lists import Packed
from .worker import Duty, run_worker

_POSIX: Final = os.name == "posix"
_LENGTH: Final = struct.Struct("!Q")
_PACKAGE_FOLDER: Final = str(Path(__file__).parents[2])
_preparing = threading.RLock()


def start_process(
    method: str, packed: Packed, duty: Duty, modules: tuple[str, ...], needs_main: bool
) -> tuple[Any, Connection]:
    """Start one worker and return its process and our end of the connection.

    Args:
        method: `spawn`, `forkserver` or `fork`.
        packed: What the worker reads.
        duty: What it is told.
        modules: What it imports while it starts.
        needs_main: Something in `packed` is defined in the user's script, so the worker has to import it.
    """
    ours, theirs = multiprocessing.Pipe()
    try:
        context: Any = worker_context(method, modules)
        process = context.Process(
            target=run_worker, args=(theirs, packed, duty), name=f"loader-{duty.number}", daemon=True
        )
        process.needs_main = needs_main
        if method == "forkserver":
            resource_tracker.ensure_running()  # starting it would end the block below
        with _without_main() if method != "fork" and not needs_main else nullcontext(), interrupts.blocked():
            process.start()
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


def worker_context(method: str, modules: tuple[str, ...] = ()) -> contexts.BaseContext:
    """Return the multiprocessing context for a start method; `modules` are imported while a worker starts."""
    if method == "spawn" and _POSIX:
        return _SpawnContext(modules)
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        # Imported once by the server, shared by all its children. It is one server per process: the first one decides.
        context.set_forkserver_preload(["yolo_rocm.data.preload", *modules])
    return context


@contextmanager
def _without_main() -> Iterator[None]:
    """Start processes that do not import the user's script: one without a main guard would run again in each."""
    original = spawn.get_preparation_data

    def without(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        return {key: value for key, value in data.items() if not key.startswith("init_main")}

    with _preparing:
        spawn.get_preparation_data = without
        try:
            yield
        finally:
            spawn.get_preparation_data = original


def _search_path() -> list[str]:
    """Return where a worker looks for modules: where this process does.

    Of itself it would look into the current folder before the standard library, where a `queue.py` of the user's may
    lie. The folder of this package comes last for the same reason, if it is not among them.
    """
    found = [entry or os.getcwd() for entry in sys.path if isinstance(entry, str)]  # Python passes over all others
    return found if _PACKAGE_FOLDER in found else [*found, _PACKAGE_FOLDER]


class _Interpreter:
    """A fresh interpreter that imports what a worker needs and waits to be told what to do."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self.modules = modules
        self.tracker = resource_tracker.getfd() or 0
        ours, theirs = socket.socketpair()
        alive_read, alive_write = os.pipe()
        code = (
            f"import sys; sys.path[:] = {_search_path()!r}; from yolo_rocm.data.standby import main; "
            f"main({theirs.fileno()}, {self.tracker}, {alive_write}, {list(modules)!r})"
        )
        command = [spawn.get_executable(), *subprocess._args_from_interpreter_flags(), "-c", code]  # type: ignore[attr-defined]
        try:
            with interrupts.blocked():
                self.pid = util.spawnv_passfds(
                    os.fsencode(spawn.get_executable()), command, [theirs.fileno(), self.tracker, alive_write]
                )
        except BaseException:
            ours.close()
            os.close(alive_read)
            raise
        finally:
            theirs.close()
            os.close(alive_write)
        self.socket, self.sentinel = ours, alive_read

    def send(self, payload: bytes, descriptors: list[int]) -> None:
        """Tell the interpreter what to run."""
        socket.send_fds(self.socket, [_LENGTH.pack(len(payload))], descriptors)
        self.socket.sendall(payload)

    def discard(self) -> None:
        """End an interpreter that was never told anything."""
        self.socket.close()
        os.close(self.sentinel)
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class _Standby:
    """Interpreters started ahead of time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Interpreter] = []
        self._owner = 0

    def start(self, count: int, modules: tuple[str, ...]) -> None:
        with self._lock:
            self._adopt()
            self._waiting.extend(_Interpreter(modules) for _ in range(count - len(self._waiting)))

    def take(self, modules: tuple[str, ...]) -> _Interpreter:
        with self._lock:
            self._adopt()
            for interpreter in self._waiting:
                if interpreter.modules == modules:
                    self._waiting.remove(interpreter)
                    return interpreter
        return _Interpreter(modules)

    def discard(self) -> None:
        with self._lock:
            self._adopt()
            while self._waiting:
                self._waiting.pop().discard()

    def _adopt(self) -> None:
        """Forget what a forked child inherited: those processes are its parent's."""
        if self._owner != os.getpid():
            self._owner, self._waiting = os.getpid(), []
            atexit.register(self.discard)


_standby = _Standby()


def prestart(count: int, modules: tuple[str, ...]) -> None:
    """Start interpreters now that spawned workers will use later, while the model is being built."""
    if _POSIX:
        _standby.start(count, modules)


def discard_prestarted() -> None:
    """End interpreters that no worker has used."""
    _standby.discard()


if _POSIX:
    from multiprocessing import popen_fork, popen_forkserver

    class _Popen(popen_fork.Popen):
        """Hands the process object to a waiting interpreter; descriptors follow through its socket."""

        method = "spawn"
        DupFd = popen_forkserver._DupFd

        def __init__(self, process: Any) -> None:
            self._fds: list[int] = []
            super().__init__(process)

        def duplicate_for_child(self, fd: int) -> int:
            """Number a descriptor that the child will receive."""
            self._fds.append(fd)
            return len(self._fds) - 1

        def _launch(self, process: Any) -> None:
            buffer, preparation = io.BytesIO(), io.BytesIO()
            contexts.set_spawning_popen(self)  # type: ignore[arg-type]
            try:
                reduction.dump(process, buffer)
                # What is packed is a pickle inside the pickle: whoever packed it has looked.
                needed = process.needs_main or references_main(buffer.getvalue())
                with nullcontext() if needed else _without_main():
                    reduction.dump(spawn.get_preparation_data(process._name), preparation)
            finally:
                contexts.set_spawning_popen(None)
            interpreter = _standby.take(process.modules)
            self.pid, self.sentinel = interpreter.pid, interpreter.sentinel
            self.finalizer = util.Finalize(self, _close_all, (interpreter.socket, interpreter.sentinel))
            with suppress(BrokenPipeError, ConnectionResetError):  # it died: whoever waits for it will notice
                interpreter.send(preparation.getvalue() + buffer.getvalue(), self._fds)

    class _SpawnProcess(contexts.SpawnProcess):
        """A process in a fresh interpreter that was started by `_Interpreter`."""

        modules: tuple[str, ...] = ()
        needs_main = False

        def run(self) -> None:
            """Do the work, then leave without the interpreter's exit; see `run_worker`."""
            super().run()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

        @staticmethod
        def _Popen(process: Any) -> Any:
            return _Popen(process)

    class _SpawnContext(contexts.SpawnContext):
        """The `spawn` start method with light, possibly waiting interpreters."""

        def __init__(self, modules: tuple[str, ...]) -> None:
            super().__init__()
            self._modules = modules

        def Process(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
            """Make a process that imports the modules as it starts."""
            process = _SpawnProcess(*args, **kwargs)
            process.modules = self._modules
            return process


def _close_all(wire: socket.socket, sentinel: int) -> None:
    wire.close()
    with suppress(OSError):
        os.close(sentinel)
