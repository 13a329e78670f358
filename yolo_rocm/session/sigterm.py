"""SIGTERM, as Slurm, Kubernetes and systemd send it, made into an orderly end while a training runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

_POSIX: Final = os.name == "posix"


class Terminated(BaseException):
    """SIGTERM came. Not an `Exception`, so that nobody takes it for an error and goes on."""


class _Signal:
    """Whether SIGTERM has come since it is being handled here, and by which process."""

    came = False
    owner = 0
    put_off = False


_signal = _Signal()


@contextmanager
def orderly_end() -> Iterator[None]:
    """Run what follows so that SIGTERM ends it like Ctrl-C does: workers end, everything is put back.

    The process then dies of SIGTERM after all: its parent sees what it would have seen, a shell reports 143. Only in
    the main thread, and only where nobody else answers the signal; inside another one of its kind it does nothing.
    """
    if not _POSIX or threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    _signal.came, _signal.owner = False, os.getpid()
    signal.signal(signal.SIGTERM, _answer)
    try:
        yield
    except Terminated:
        _signal.came = True
    finally:
        if signal.getsignal(signal.SIGTERM) is _answer:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if _signal.came:
            _die()


def _answer(number: int, frame: Any) -> None:
    if os.getpid() != _signal.owner:  # a forked child has inherited the answer; it was meant for its parent
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _die()
    if _signal.came:
        return  # it is ending already
    _signal.came = True
    if not _signal.put_off:
        raise Terminated


@contextmanager
def put_off() -> Iterator[None]:
    """Let SIGTERM wait while a short last thing is done; it has its effect when `orderly_end` is left.

    The launcher of several ranks passes on the Ctrl-C that the terminal has sent to them already, so that Ctrl-C
    waits too in a process which a launcher has started. Elsewhere a second one is the user's own.
    """
    before = None
    if "LOCAL_RANK" in os.environ and threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    _signal.put_off = True
    try:
        yield
    finally:
        _signal.put_off = False
        if before is not None:
            signal.signal(signal.SIGINT, before)


def check() -> None:
    """End here if SIGTERM came while Python had to swallow every exception, as in a finalizer."""
    here = threading.current_thread() is threading.main_thread() and os.getpid() == _signal.owner
    if _signal.came and here and signal.getsignal(signal.SIGTERM) is _answer:
        raise Terminated


def _die() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)  # another thread may be the one that gets it
    os._exit(128 + signal.SIGTERM)  # the first process of a container does not die of signals
