"""One child process that answers probes: its answers, its noise, its end."""

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

from ..utils.child_process import UNKILLABLE, end_group, ending, last_lines, own_group, signal_name
from .outcome import Limits, ProbeOutcome, Status, judged
from .probes import DeviceProbe

_TAIL_BYTES: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 16
_FLOOD_BYTES: Final = 64 << 20
_POLL_S: Final = 0.05
_LEAVE_S: Final = 2.0
_LEAVES_BY_ITSELF: Final = ("done", "restart", "end of output")
_SIGNALS: Final[dict[str, Status]] = {"SIGSEGV": "segfault", "SIGBUS": "segfault", "SIGABRT": "abort"}


class ProbeProcess:
    """A started child.

    Attributes:
        immortal: It could not be killed; the driver may hold it.
        restart_after: The probe after which it asked to be replaced, because the runtime keeps an error.
    """

    def __init__(self, command: Sequence[str], waiting: Sequence[DeviceProbe], env: Mapping[str, str] | None) -> None:
        self._probes = {probe.name: probe for probe in waiting}
        self._lines: queue.Queue[bytes | None] = queue.Queue(maxsize=1000)
        self._said = b""
        self._noise = 0  # bytes that the readers have thrown away
        self.immortal = False
        self._current: str | None = None
        self.restart_after: str | None = None
        self._failure = ""
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                [*command, ",".join(self._probes)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=None if env is None else dict(env),
                **own_group(),
            )
        except OSError as error:
            self._failure = str(error)

    def talk(
        self,
        outcomes: dict[str, ProbeOutcome],
        limits: Limits,
        deadline: float,
        heard: Callable[[], None] = lambda: None,
    ) -> ProbeOutcome | None:
        """Collect answers until the child ends; return the outcome of the probe it died in, if it died.

        Args:
            outcomes: Where answers go, by probe.
            limits: How long to wait.
            deadline: When to stop in any case.
            heard: Called after each answer.
        """
        if self._process is None:
            return ProbeOutcome(next(iter(self._probes)), "no answer", f"the process did not start: {self._failure}")
        readers = [
            threading.Thread(target=self._read_answers, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_noise, args=(self._process.stderr,), daemon=True),
        ]
        for reader in readers:
            reader.start()
        why = "interrupted"
        since = time.monotonic()
        try:
            why, since = self._listen(outcomes, limits, deadline, heard)
        finally:
            waited = time.monotonic() - since
            own_end = self._end(why in _LEAVES_BY_ITSELF, limits.end, readers)
        left = [name for name in self._probes if name not in outcomes]
        if not left or why in ("done", "time is over", "restart"):
            return None
        return self._verdict(self._current if self._current in left else left[0], why, waited, own_end)

    def _listen(
        self, outcomes: dict[str, ProbeOutcome], limits: Limits, deadline: float, heard: Callable[[], None]
    ) -> tuple[str, float]:
        """Return why there is nothing more to hear, and when the last word came."""
        since, patience = time.monotonic(), limits.start
        unasked = 0
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
                    heard()
                since = now
                if all(probe in outcomes for probe in self._probes):
                    return "done", since
            elif name != self._current:
                unasked += len(line)
            # Readers count noise as it comes; an answer that came before it may still be waiting to be heard.
            if unasked > _FLOOD_BYTES or (self._noise > _FLOOD_BYTES and not line):
                return "flood", since
            if now - since > patience:
                return "overdue", since
            if now > deadline:
                return "time is over", since

    def _verdict(self, name: str, why: str, waited: float, own_end: bool) -> ProbeOutcome:
        assert self._process is not None
        last = self._last_words()
        if why == "overdue":
            more = f", and the process {UNKILLABLE}" if self.immortal else ""
            return ProbeOutcome(
                name,
                "hang",
                f"no answer within {waited:.0f} s (a hang, or kernels that compile for longer){more}{last}",
                seconds=waited,
            )
        if why == "flood":
            return ProbeOutcome(name, "no answer", f"only noise, more than {_FLOOD_BYTES >> 20} MB of it{last}")
        if not own_end:
            return ProbeOutcome(name, "no answer", f"the process closed its output and went on{last}")
        code = self._process.returncode
        death = signal_name(code)
        status: Status = "no answer" if death is None else _SIGNALS.get(death, "signal")
        return ProbeOutcome(name, status, f"the process {ending(code)}{last}")

    @property
    def said(self) -> str:
        """The end of what the child wrote besides its answers."""
        return self._said.decode("utf-8", errors="replace")

    def _last_words(self) -> str:
        return last_lines(self.said, 3)

    def _read_answers(self, pipe: IO[bytes]) -> None:
        """Hand over lines that may be answers; everything else is counted and forgotten."""
        with contextlib.suppress(OSError, ValueError):
            while True:
                line = pipe.readline(_LONGEST_LINE)
                if not line:
                    break
                if line.startswith(b"{") and line.endswith(b"\n") and (b'"probe"' in line or b'"restart"' in line):
                    self._lines.put(line)
                else:
                    self._noise += len(line)
        self._lines.put(None)

    def _read_noise(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                piece = os.read(pipe.fileno(), _TAIL_BYTES)
                if not piece:
                    break
                self._noise += len(piece)
                self._said = (self._said + piece)[-_TAIL_BYTES:]

    def _end(self, by_itself: bool, patience: float, readers: Sequence[threading.Thread]) -> bool:
        """End the child and all its children, and collect it, within `patience`; tell whether it left by itself."""
        process = self._process
        assert process is not None
        if by_itself:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LEAVE_S)
        own_end = process.poll() is not None
        if not end_group(process, patience):
            self.immortal = True
        stop = time.monotonic() + _LEAVE_S
        while any(reader.is_alive() for reader in readers) and time.monotonic() < stop:
            with contextlib.suppress(queue.Empty):  # a reader may be waiting for room
                self._lines.get(timeout=_POLL_S)
        for pipe, reader in zip((process.stdout, process.stderr), readers, strict=True):
            if pipe is not None and not reader.is_alive():
                pipe.close()
        return own_end


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
