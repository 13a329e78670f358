"""A fresh interpreter that becomes a loading worker: it imports first, then does what its parent sends."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
from io import BytesIO

from . import interrupts
from .lazy_imports import defer_imports, import_all


def main(wire_descriptor: int, tracker: int, alive: int, modules: list[str]) -> None:
    """Wait for a process object and run it. `alive` stays open as long as this process lives.

    What the parent sends is read while the imports run, so that the parent never waits for them.
    """
    del alive
    interrupts.ignore()
    sys.argv = ["-c"]
    wire = socket.socket(fileno=wire_descriptor)
    received: list[tuple[bytes, list[int]]] = []
    listener = threading.Thread(target=lambda: received.append(_receive(wire)), daemon=True)
    listener.start()
    defer_imports()
    import_all(modules)
    listener.join()
    if not received or not received[0][0]:
        os._exit(0)  # never needed
    code = 1
    try:
        code = _run(wire, tracker, *received[0])
    except BaseException:  # at once, without the interpreter's exit: whoever waits wants to know that it cannot start
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    os._exit(code)


def _receive(wire: socket.socket) -> tuple[bytes, list[int]]:
    try:
        head, descriptors, _, _ = socket.recv_fds(wire, 8, 250)
        if len(head) < 8:
            os._exit(0)  # the parent closed: nothing to wait for, whatever is still being imported
        length = int.from_bytes(head, "big")
        data = bytearray()
        while len(data) < length:
            piece = wire.recv(min(1 << 20, length - len(data)))
            if not piece:
                os._exit(0)
            data += piece
        return bytes(data), list(descriptors)
    except OSError:
        os._exit(0)


def _run(wire: socket.socket, tracker: int, payload: bytes, descriptors: list[int]) -> int:
    from multiprocessing import forkserver, process, resource_tracker, spawn

    resource_tracker._resource_tracker._fd = tracker  # type: ignore[attr-defined]
    forkserver._forkserver._inherited_fds = descriptors  # type: ignore[attr-defined]
    stream = BytesIO(payload)
    current = process.current_process()
    current._inheriting = True  # type: ignore[attr-defined]
    try:
        spawn.prepare(pickle.load(stream))
        task = pickle.load(stream)
    finally:
        del current._inheriting  # type: ignore[attr-defined]
    code: int = task._bootstrap(os.dup(wire.fileno()))
    return code
