"""One child process that answers probes: its answers, what else it prints, its end."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Final

from ..utils.child_process import UNKILLABLE, child_environ, end_group, ending, last_lines, own_group, signal_name
from .outcome import Limits, ProbeOutcome, Status, judged
from .probes import DeviceProbe

_TAIL_BYTES: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 16
_POLL_S: Final = 0.05
_LEAVE_S: Final = 2.0
_LEAVES_BY_ITSELF: Final = ("done", "restart", "end of output")
_SIGNALS: Final[dict[str, Status]] = {"SIGSEGV": "segfault", "SIGBUS": "segfault", "SIGABRT": "abort"}


class ProbeProcess:
    """A child process.

    Attributes:
        unkillable: It could not be killed; the driver may hold it.
        restart_after: The probe after which it asked to be replaced, because the runtime keeps an error.
    """

    def __init__(self, command: Sequence[str], probes: Sequence[DeviceProbe], env: Mapping[str, str] | None) -> None:
        self._command, self._env = [*command, ",".join(probe.name for probe in probes)], env
        self._probes = {probe.name: probe for probe in probes}
        self._lines: queue.Queue[bytes | None] = queue.Queue(maxsize=1000)
        self._tail = b""
        self._current: str | None = None
        self.unkillable = False
        self.restart_after: str | None = None

    @property
    def output(self) -> str:
        """The end of what it wrote besides its answers."""
        return self._tail.decode("utf-8", errors="replace")

    def run(
        self,
        outcomes: dict[str, ProbeOutcome],
        limits: Limits,
        deadline: float,
        progress: Callable[[], None] = lambda: None,
    ) -> ProbeOutcome | None:
        """Collect answers until the child ends; return the outcome of the probe it died in, if it died.

        Args:
            outcomes: Where answers go, by probe.
            limits: How long to wait.
            deadline: When to stop in any case.
            progress: Called after each answer.
        """
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=child_environ(self._env),
                **own_group(),
            )
        except OSError as error:
            return ProbeOutcome(next(iter(self._probes)), "no answer", f"the process did not start: {error}")
        readers = [
            threading.Thread(target=self._read_answers, args=(process.stdout,), daemon=True),
            threading.Thread(target=self._read_output, args=(process.stderr,), daemon=True),
        ]
        for reader in readers:
            reader.start()
        why, since = "interrupted", time.monotonic()
        try:
            why, since = self._listen(outcomes, limits, deadline, progress)
        finally:
            waited = time.monotonic() - since
            left_by_itself = self._end(process, why in _LEAVES_BY_ITSELF, limits.end, readers)
        left = [name for name in self._probes if name not in outcomes]
        if not left or why in ("done", "time is over", "restart"):
            return None
        name = self._current if self._current in left else left[0]
        if why == "overdue":
            held = f", and the process {UNKILLABLE}" if self.unkillable else ""
            message = f"no answer within {waited:.0f} s (a hang, or kernels that compile for longer){held}"
            return ProbeOutcome(name, "hang", message + last_lines(self.output, 3), seconds=waited)
        if not left_by_itself:
            message = "the process closed its output and went on"
            return ProbeOutcome(name, "no answer", message + last_lines(self.output, 3))
        word = signal_name(process.returncode)
        status: Status = "no answer" if word is None else _SIGNALS.get(word, "signal")
        return ProbeOutcome(name, status, f"the process {ending(process.returncode)}{last_lines(self.output, 3)}")

    def _listen(
        self, outcomes: dict[str, ProbeOutcome], limits: Limits, deadline: float, progress: Callable[[], None]
    ) -> tuple[str, float]:
        """Return why there are no more answers, and when the last one came."""
        since, patience = time.monotonic(), limits.start
        while True:
            try:
                line = self._lines.get(timeout=_POLL_S)
            except queue.Empty:
                line = b""
            if line is None:
                return "end of output", since
            now = time.monotonic()
            answer = _parsed(line)
            name = str(answer.get("probe"))
            if answer.get("restart") and any(probe in outcomes for probe in self._probes):
                self.restart_after = self._current
                return "restart", since
            if name in self._probes and name not in outcomes:
                if answer.get("begin"):
                    first, self._current = self._current is None, name
                    # The first one is announced before torch is imported: that wait is the long one.
                    slow = limits.compile if self._probes[name].compiles else limits.probe
                    patience = limits.start if first else slow
                else:
                    outcomes[name] = judged(self._probes[name], answer, now - since)
                    patience = limits.probe
                    progress()
                since = now
                if all(probe in outcomes for probe in self._probes):
                    return "done", since
            if now - since > patience:
                return "overdue", since
            if now > deadline:
                return "time is over", since

    def _read_answers(self, pipe: IO[bytes]) -> None:
        """Hand over lines that may be answers; everything else is dropped."""
        with contextlib.suppress(OSError, ValueError):
            while line := pipe.readline(_LONGEST_LINE):
                if line.startswith(b"{") and line.endswith(b"\n") and (b'"probe"' in line or b'"restart"' in line):
                    self._lines.put(line)
        self._lines.put(None)

    def _read_output(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while piece := os.read(pipe.fileno(), _TAIL_BYTES):
                self._tail = (self._tail + piece)[-_TAIL_BYTES:]

    def _end(
        self,
        process: subprocess.Popen[bytes],
        by_itself: bool,
        patience: float,
        readers: Sequence[threading.Thread],
    ) -> bool:
        """End the child and all its children, and collect it, within `patience`; return whether it left by itself."""
        if by_itself:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LEAVE_S)
        left_by_itself = process.poll() is not None
        self.unkillable = not end_group(process, patience)
        stop = time.monotonic() + _LEAVE_S
        while any(reader.is_alive() for reader in readers) and time.monotonic() < stop:
            with contextlib.suppress(queue.Empty):  # a reader may be waiting for room
                self._lines.get(timeout=_POLL_S)
        for pipe, reader in zip((process.stdout, process.stderr), readers, strict=True):
            if pipe is not None and not reader.is_alive():
                pipe.close()
        return left_by_itself


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
