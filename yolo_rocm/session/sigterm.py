"""SIGTERM, as Slurm, Kubernetes and systemd send it, and SIGHUP of a closed terminal: an orderly end of a training."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, Final

# What they are, for people; Windows has no SIGHUP, and its SIGTERM comes from nowhere.
_ENDS: Final = {"SIGTERM": "SIGTERM", "SIGHUP": "SIGHUP (the terminal was closed)"} if os.name == "posix" else {}


class Terminated(BaseException):
    """A signal that ends the process came. Not an `Exception`, so that nobody takes it for an error and goes on."""

    def __init__(self, number: int) -> None:
        super().__init__(_ENDS[signal.Signals(number).name])
        self.number = number


# Which signal has come since they are handled here, 0 before one, and by which process they are handled.
_signal = SimpleNamespace(came=0, owner=0, put_off=False)


@contextmanager
def orderly_end() -> Iterator[None]:
    """Run what follows so that SIGTERM and SIGHUP end it like Ctrl-C does: workers end, everything is put back.

    The process then dies of the signal after all: its parent sees what it would have seen, a shell reports 143 or 129.
    Only in the main thread, and only signals that are not answered already: `nohup` has SIGHUP ignored. Inside another
    one of its kind it does nothing.
    """
    numbers = [getattr(signal, name) for name in _ENDS]
    answers = [signal.getsignal(number) for number in numbers]
    ours = [number for number, answer in zip(numbers, answers, strict=True) if answer is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread() or not ours or _answer in answers:
        yield
        return
    _signal.came, _signal.owner = 0, os.getpid()
    for number in ours:
        signal.signal(number, _answer)
    try:
        yield
    except Terminated as end:
        _signal.came = end.number
    finally:
        for number in ours:
            if signal.getsignal(number) is _answer:
                signal.signal(number, signal.SIG_DFL)
        if _signal.came:
            _die(_signal.came)


def _answer(number: int, frame: Any) -> None:
    if os.getpid() != _signal.owner:  # a forked child has inherited the answer; it was meant for its parent
        signal.signal(number, signal.SIG_DFL)
        _die(number)
    if _signal.came:
        return  # it is ending already
    _signal.came = number
    if not _signal.put_off:
        raise Terminated(number)


@contextmanager
def put_off() -> Iterator[None]:
    """Let such a signal wait while a short last thing is done; it has its effect when `orderly_end` is left.

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
    """End here if a signal came while Python had to swallow every exception, as in a finalizer."""
    here = threading.current_thread() is threading.main_thread() and os.getpid() == _signal.owner
    if _signal.came and here and signal.getsignal(_signal.came) is _answer:
        raise Terminated(_signal.came)


def _die(number: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os.kill(os.getpid(), number)
    time.sleep(1)  # another thread may be the one that gets it
    os._exit(128 + number)  # the first process of a container does not die of signals
