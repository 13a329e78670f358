"""Starts worker processes as the standard library does: by its fork server, by spawn, or by fork.

Three things differ from plain `multiprocessing`: the user's script is imported only by workers that need something it
defines, workers do not hear Ctrl-C, and they leave without the interpreter's exit.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from multiprocessing import context as contexts
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from ..errors import LoaderError
from ..utils import scoped_patch
from . import interrupts
from .main_guard import WITHOUT_WORKERS
from .preflight import needs_main_module
from .shared_lists import Packed
from .worker import WorkerConfig, run_worker

_server_lock = threading.Lock()


def start_server(modules: Sequence[str]) -> str:
    """Start the fork server of our workers if it does not run yet, and return at once; workers then start in no time.

    There is one for the whole process, until it ends. It is not the one that `multiprocessing` has for everybody: a
    user's processes inherit neither its signal mask and environment nor what it has imported.

    Args:
        modules: What the server imports, once for all workers.

    Returns:
        Why it cannot start (the path of the temporary folder may be too long for its socket), or nothing.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "this system has no fork server"
    with _server_lock, _prepared(False):
        resource_tracker.ensure_running()  # starting it would end the block below
        server = _own_server()
        try:
            server.set_forkserver_preload(list(modules))
            with interrupts.blocked():  # workers inherit the block, until they ignore Ctrl-C
                server.ensure_running()
        except OSError as error:
            return str(error)
    return ""


@lru_cache(maxsize=1)
def _own_server() -> Any:
    from multiprocessing import forkserver

    return forkserver.ForkServer()


def start_process(
    method: str, packed: Packed, config: WorkerConfig, modules: Sequence[str], needs_main: bool
) -> tuple[Any, Connection]:
    """Start one worker and return its process and our end of the connection.

    Args:
        method: `spawn`, `forkserver` or `fork`.
        packed: What the worker reads.
        config: Its number, seeds and limits.
        modules: What a fork server imports.
        needs_main: Something in `packed` is defined in the user's script, so the worker has to import it.

    Raises:
        LoaderError: No process can be started here.
    """
    ours, theirs = multiprocessing.Pipe()
    try:
        context: Any = worker_context(method)
        process = context.Process(
            target=run_worker, args=(theirs, packed, config), name=f"loader-{config.number}", daemon=True
        )
        process.needs_main, process.modules = needs_main, modules
        # A fork server's workers have the server's signal mask, and waiting for its imports may be ended by Ctrl-C.
        with nullcontext() if method == "forkserver" else interrupts.blocked():
            process.start()
    except (EOFError, OSError) as error:
        ours.close()
        raise LoaderError(
            f"a loading worker cannot be started by {method} ({type(error).__name__}: {error}). Use the start method "
            f"{'spawn' if method == 'forkserver' else 'forkserver'}, {WITHOUT_WORKERS}."
        ) from error
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


def worker_context(method: str) -> contexts.BaseContext:
    """Return the multiprocessing context for a start method, for our own workers and those of torch's DataLoader."""
    if method not in multiprocessing.get_all_start_methods():
        raise LoaderError(f"this system cannot start workers by {method}. Use spawn, {WITHOUT_WORKERS}.")
    if method == "spawn":
        return _SpawnContext()
    return _ForkServerContext() if method == "forkserver" else multiprocessing.get_context(method)


@contextmanager
def _prepared(needs_main: bool) -> Iterator[None]:
    """Start processes in this thread that import what we mean: Python's own modules, and the script only if needed."""

    def prepare(original: Callable[[str], dict[str, Any]], name: str) -> dict[str, Any]:
        data = original(name)
        # A `Path` in `sys.path` is a common mistake: Python passes over it, the start of a fork server does not.
        data["sys_path"] = [entry for entry in data["sys_path"] if isinstance(entry, str)]
        return {key: value for key, value in data.items() if needs_main or not key.startswith("init_main")}

    def flags(original: Callable[[], list[str]]) -> list[str]:
        # `python -c` looks into the current folder first, where the user's `queue.py` would be taken for Python's own.
        return [*original(), "-P"] if sys.version_info >= (3, 11) else original()

    with (
        _replaced_in_this_thread("multiprocessing.spawn", "get_preparation_data", prepare),
        _replaced_in_this_thread("multiprocessing.util", "_args_from_interpreter_flags", flags),
    ):
        yield


@contextmanager
def _replaced_in_this_thread(module: str, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Replace a function of a module for this thread alone; multiprocessing has no public way to start as we do.

    `replacement` is called with the original function before the arguments.
    """
    thread = threading.get_ident()

    def replace(original: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any) -> Any:
            ours = threading.get_ident() == thread
            return replacement(original, *args) if ours else original(*args)

        return function

    with scoped_patch.attribute(module, name).on(replace, f"thread {thread}"):
        yield


class _WorkerProcess:
    """Goes before a process class of multiprocessing."""

    needs_main: bool | None = None

    def start(self) -> None:
        """Start the process; whether it needs the user's script is found out where nobody has said so."""
        needed = needs_main_module(vars(self)) if self.needs_main is None else self.needs_main
        with _prepared(needed):
            super().start()  # type: ignore[misc]

    def run(self) -> None:
        """Do the work, then leave without the interpreter's exit; see `run_worker`."""
        interrupts.ignore()
        super().run()  # type: ignore[misc]
        with suppress(Exception):  # there may be no console
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)


class _SpawnProcess(_WorkerProcess, contexts.SpawnProcess):
    """A process in a new interpreter."""


class _SpawnContext(contexts.SpawnContext):
    Process = _SpawnProcess


if os.name == "posix":

    class _ForkServerProcess(_WorkerProcess, contexts.ForkServerProcess):
        """A process forked from the fork server."""

        modules: Sequence[str] = ("torch",)

        def start(self) -> None:
            """Start it by our own server."""
            start_server(self.modules)

            def connect(everybodys: Any, descriptors: Any) -> Any:
                return _own_server().connect_to_new_process(descriptors)

            with _replaced_in_this_thread("multiprocessing.forkserver", "connect_to_new_process", connect):
                super().start()

    class _ForkServerContext(contexts.ForkServerContext):
        Process = _ForkServerProcess
