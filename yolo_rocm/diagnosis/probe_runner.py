"""Ask the device in a process of its own, which may hang or crash without taking us with it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from ..utils.child_process import UNKILLABLE, child_environ, end_group, ending, last_lines, own_group, signal_name
from .outcome import Limits, ProbeOutcome, Status, judged
from .probes import DeviceProbe

# So many deaths of one dtype, or of one way to compute something: what is left of it would die the same way.
_MOST_DEATHS: Final = {"dtype": 2, "way": 3}
_TAIL_BYTES: Final = 1 << 16
_POLL_S: Final = 0.02
_LEAVE_S: Final = 2.0
_SIGNALS: Final[dict[str, Status]] = {"SIGSEGV": "segfault", "SIGBUS": "segfault", "SIGABRT": "abort"}


def child_command(device: str = "cuda") -> list[str]:
    """Return the command of the real child."""
    return [sys.executable, "-m", "yolo_rocm.diagnosis.probe_child", "--device", device]


@dataclass(frozen=True)
class Answers:
    """One outcome per probe, in their order, and the end of what the processes printed besides."""

    outcomes: tuple[ProbeOutcome, ...] = ()
    output: str = ""


def run_probes(
    probes: Sequence[DeviceProbe],
    command: Sequence[str],
    limits: Limits | None = None,
    env: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """Put every probe to a child process; one that dies is replaced, and the others go on after the culprit.

    Nothing is raised, whatever the child does.

    Args:
        probes: What to ask, in this order.
        command: The child; the names of the probes and the file for its answers are added as its last arguments.
        limits: How long to wait.
        env: Variables of the child over those of this process.
        progress: Called with (answered, all) after each answer.
    """
    limits = limits or Limits()
    outcomes: dict[str, ProbeOutcome] = {}
    by_name = {probe.name: probe for probe in probes}
    deaths: Counter[str] = Counter()
    output: list[str] = []
    deadline = time.monotonic() + limits.total

    def answered() -> None:
        if progress is not None:
            progress(len(outcomes), len(probes))

    def skip(reason: str, beginning: str = "") -> None:
        for name in by_name:
            if f"{name}/".startswith(beginning):
                outcomes.setdefault(name, ProbeOutcome(name, "skipped", reason))

    def count_death(probe: DeviceProbe) -> None:
        for scope, beginning in (("dtype", f"{probe.group}/"), ("way", f"{probe.kind}/{probe.way}/")):
            if probe.way or scope == "dtype":
                deaths[beginning] += 1
                if deaths[beginning] >= _MOST_DEATHS[scope]:
                    skip(f"{deaths[beginning]} probes of {beginning[:-1]} ended the process", beginning)

    while waiting := {name: probe for name, probe in by_name.items() if name not in outcomes}:
        if time.monotonic() >= deadline:
            skip(f"{limits.total:.0f} s were over")
            break
        answered()
        child = _Child(waiting, outcomes, limits, deadline, answered)
        culprit = child.run(command, env)
        output.append(child.output)
        if culprit is not None:
            outcomes[culprit.name] = culprit
            count_death(by_name[culprit.name])
            if child.unkillable:
                skip(f"a process that {UNKILLABLE} holds the device")
            elif by_name[culprit.name].kind == "device":
                skip("the device did not answer")
        elif child.restarts:
            count_death(by_name[child.current])
    answered()
    return Answers(tuple(outcomes[name] for name in by_name), "\n".join(output))


@dataclass
class _Child:
    """One process that answers probes.

    Attributes:
        probes: What it is asked.
        outcomes: Where its answers go.
        limits: How long to wait.
        deadline: When to stop in any case.
        answered: Called after each answer.
        current: The probe that it has begun with last.
        restarts: It asked to be replaced, because the runtime keeps an error.
        unkillable: It could not be killed; the driver may hold it.
        output: The end of what it printed.
    """

    probes: Mapping[str, DeviceProbe]
    outcomes: dict[str, ProbeOutcome]
    limits: Limits
    deadline: float
    answered: Callable[[], None]
    current: str = field(default="", init=False)
    restarts: bool = field(default=False, init=False)
    unkillable: bool = field(default=False, init=False)
    output: str = field(default="", init=False)

    def run(self, command: Sequence[str], env: Mapping[str, str] | None) -> ProbeOutcome | None:
        """Collect answers until it ends; return the outcome of the probe it died in, if it died."""
        with tempfile.TemporaryDirectory(prefix="yolo-rocm-", ignore_cleanup_errors=True) as folder:
            answers, log = Path(folder) / "answers", Path(folder) / "log"
            answers.touch()
            with log.open("wb") as printed, answers.open("rb") as lines:
                process = subprocess.Popen(
                    [*command, ",".join(self.probes), str(answers)],
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=printed,
                    env=child_environ(env),
                    **own_group(),
                )
                try:
                    silent_s = self._listen(process, lines)
                    is_alive = process.poll() is None
                finally:
                    self.unkillable = not end_group(process, self.limits.end)
            with log.open("rb") as printed:
                printed.seek(max(0, log.stat().st_size - _TAIL_BYTES))
                self.output = printed.read().decode("utf-8", errors="replace")
        left = [name for name in self.probes if name not in self.outcomes]
        if not left or self.restarts or time.monotonic() > self.deadline:
            return None
        name, last = self.current if self.current in left else left[0], last_lines(self.output, 3)
        if is_alive:
            held = f", and the process {UNKILLABLE}" if self.unkillable else ""
            message = f"no answer within {silent_s:.0f} s (a hang, or kernels that compile for longer){held}{last}"
            return ProbeOutcome(name, "hang", message, seconds=silent_s)
        signal = signal_name(process.returncode)
        status: Status = "no answer" if signal is None else _SIGNALS.get(signal, "signal")
        return ProbeOutcome(name, status, f"the process {ending(process.returncode)}{last}")

    def _listen(self, process: subprocess.Popen[bytes], lines: IO[bytes]) -> float:
        """Take answers until there are no more; return how long there was none."""
        since, patience = time.monotonic(), self.limits.start
        while True:
            has_ended = process.poll() is not None  # before reading: what it wrote last is read after that
            for answer in _new(lines):
                name = answer.get("probe", self.current)
                if answer.get("begin"):
                    # The first one is announced before torch is imported: that wait is the long one.
                    usual = self.limits.compile if self.probes[name].compiles else self.limits.probe
                    patience = usual if self.current else self.limits.start
                    self.current = name
                elif answer.get("restart"):
                    self.restarts = True
                else:
                    self.outcomes[name] = judged(self.probes[name], answer, time.monotonic() - since)
                    patience = self.limits.probe
                    self.answered()
                since = time.monotonic()
            if self.restarts or all(name in self.outcomes for name in self.probes):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LEAVE_S)
                return 0.0
            silent_s = time.monotonic() - since
            if has_ended or silent_s > patience or time.monotonic() > self.deadline:
                return silent_s
            time.sleep(_POLL_S)


def _new(lines: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield what is in the whole lines that were written since the last time."""
    while (line := lines.readline()).endswith(b"\n"):
        yield json.loads(line)
    lines.seek(-len(line), os.SEEK_CUR)
