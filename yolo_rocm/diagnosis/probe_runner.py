"""Ask the device in a process of its own, which may hang, crash or talk nonsense without taking us with it."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..utils.child_process import UNKILLABLE
from .outcome import Limits, ProbeOutcome
from .probe_process import ProbeProcess
from .probes import DeviceProbe

# So many deaths of one dtype, or of one way to compute something: what is left of it would die the same way.
_MOST_DEATHS: Final = {"dtype": 2, "way": 3}


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
        command: The child; the names of the probes are added as its last argument.
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

    while waiting := [probe for probe in probes if probe.name not in outcomes]:
        if time.monotonic() >= deadline:
            skip(f"{limits.total:.0f} s were over")
            break
        answered()
        child = ProbeProcess(command, waiting, env)
        culprit = child.run(outcomes, limits, deadline, answered)
        output.append(child.output)
        if culprit is not None:
            outcomes[culprit.name] = culprit
            count_death(by_name[culprit.name])
            if child.unkillable:
                skip(f"a process that {UNKILLABLE} holds the device")
            elif by_name[culprit.name].kind == "device":
                skip("the device did not answer")
        elif child.restart_after in outcomes:
            count_death(by_name[str(child.restart_after)])
    answered()
    return Answers(tuple(outcomes[name] for name in by_name), "\n".join(output))
