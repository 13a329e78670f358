"""Processes that compile: started when there is work, several at once, ended when idle, hanging or gone.

Compilers keep a lock of their own, so that threads of one process take turns in them; processes do not.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from ...utils.child_process import end_group, ending, last_lines, own_group
from ..kernel_errors import CompilerError

SCRIPT: Final = Path(__file__).with_name("rtc.py")
_MOST: Final = 8
_IDLE_S: Final = 10.0
_END_S: Final = 5.0
_LAST_BYTES: Final = 2000


class CompilerHangs(CompilerError):
    """The compiler gave no answer in time."""


class Worker:
    """One process of `rtc.py`."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 -- as long as the process
        # Neither site-packages nor the user's variables for Python: the script needs the standard library alone.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            **own_group(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests: IO[bytes] = self._process.stdin
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the reply to a request.

        Raises:
            CompilerHangs: There was none within `limit_s`. The worker is gone.
            CompilerError: The process has ended instead.
        """
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
            line = self._lines.get(timeout=limit_s)
        except queue.Empty:
            self.close()
            raise CompilerHangs(f"the compiler has not answered within {limit_s:.0f} s") from None
        except OSError:  # it was gone before
            line = b""
        except BaseException:  # Ctrl-C: its answer would be taken for that to another request
            self.close()
            raise
        with suppress(ValueError):  # the end, or of a process that has ended in the middle of a line
            return dict(json.loads(line))
        raise self._ended()

    def close(self) -> None:
        """End the process."""
        end_group(self._process, _END_S)
        self._said.close()
        with suppress(OSError):  # what was not written yet cannot be any more
            self._requests.close()

    def _ended(self) -> CompilerError:
        code = 0
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_END_S)
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _LAST_BYTES))
        said = self._said.read().decode("utf-8", "replace").strip()
        self.close()
        return CompilerError(f"the compiler's process {ending(code)}{last_lines(said, 1)}")

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                self._lines.put(line)
        self._lines.put(b"")  # the end


class Pool:
    """The workers of this process."""

    def __init__(self, most: int | None = None, idle_s: float = _IDLE_S) -> None:
        self._room = threading.BoundedSemaphore(most or max(1, min(_MOST, os.cpu_count() or 1)))
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._idle_s, self._timer = idle_s, None  # type: float, threading.Timer | None

    def compile(self, library: str, family: str, text: str, name: str, options: list[str], limit_s: float) -> bytes:
        """Return a code object.

        Raises:
            CompilerError: It does not compile, with the compiler's first error; or the compiler is ill.
        """
        request = {"library": library, "family": family, "text": text, "name": name, "options": options}
        reply = self._ask(request, limit_s)
        if "code" in reply:
            return base64.b64decode(reply["code"])
        first = next((f": {line.strip()}" for line in str(reply.get("log", "")).splitlines() if "error" in line), "")
        raise CompilerError(f"{name}: {reply.get('error')}{first}")

    def _ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        with self._room:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            worker = worker or Worker()
            reply = worker.ask(request, limit_s)
            with self._lock:
                self._idle.append(worker)
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = threading.Timer(self._idle_s, self.close)
                self._timer.daemon = True
                self._timer.start()
            return reply

    def close(self) -> None:
        """End all that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()


POOL: Final = Pool()
atexit.register(POOL.close)
