"""Environment variables of a preset: which ones apply here, set in time, and put back."""

from __future__ import annotations

import os
import platform
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ..errors import PresetError, StackError
from ..hardware import HIDES_FIRST, HIDES_NEXT, OVERRIDE, Machine
from ..utils.paths import cache_folder
from ..utils.process_group import place
from .moments import Moment, moment, passed, vendor_may_have_run
from .schema import Preset, When

RANK_VARIABLE: Final = "LOCAL_RANK"
_TRITON: Final = "TRITON_CACHE_DIR"
_CACHES: Final = {"MIOPEN_USER_DB_PATH": "db", "MIOPEN_CUSTOM_CACHE_DIR": "kernels"}
# What this process has set by itself: a nested plan must not take it for the user's word.
_ours: dict[str, str] = {}
_holders: Counter[str] = Counter()  # how many runs and registrations want each of them; the last one puts it back
_lock = threading.Lock()


@dataclass(frozen=True)
class Decision:
    """What becomes of one variable of a preset."""

    name: str
    value: str  # what it will hold; for `keep`, what it holds
    action: str  # `set`, `skip` (a condition does not hold) or `keep` (the user has set it)
    reason: str
    required: bool = False  # no training on the card without it
    wanted: str | None = None  # what the preset would have set in place of the user's value, if anything
    folder: bool = False  # the value is a folder that must exist

    @property
    def said(self) -> str | None:
        """A line for users whose value wins over another one; None where there is nothing to say."""
        if self.action != "keep" or self.wanted == self.value:
            return None
        return f"{self.name}={self.value} stays as set in the environment: {self.reason}"


def plan(preset: Preset, machine: Machine, device: Any = None) -> list[Decision]:
    """Decide for every variable of `preset` and of the machine, without changing anything. What the user has set wins.

    Args:
        preset: The preset.
        machine: Facts its conditions are checked against.
        device: Ultralytics' `device` argument; where it names GPUs, none is hidden.
    """
    decisions = []
    for name, variable in preset.env.items():
        unmet = _unmet(variable.when, machine, f"env.{name}.when", preset.match.gfx)
        current = _users(name)
        if current is None and name == OVERRIDE and machine.gpu is not None:
            current = _users(f"{name}_{machine.gpu.node}")  # of one card; it wins (libhsakmt, topology.c)
        if current is not None:
            wins = f"this preset would not set it ({unmet})" if unmet else f"the preset would set {variable.value}"
            wanted = None if unmet else variable.value
            decisions.append(Decision(name, current, "keep", f"what the user sets wins; {wins}", wanted=wanted))
        elif unmet:
            decisions.append(Decision(name, variable.value, "skip", unmet))
        else:
            decisions.append(Decision(name, variable.value, "set", variable.why, required=variable.required))
    planned = {decision.name for decision in decisions}
    others = (*_hide_integrated(machine, device), *_own_caches(machine))
    return [*decisions, *(decision for decision in others if decision.name not in planned)]


def _users(name: str) -> str | None:
    """Return what the user has set a variable to; None for what we have set ourselves."""
    current = os.environ.get(name)
    return None if current is not None and _ours.get(name) == current else current


def _hide_integrated(machine: Machine, device: Any) -> Iterator[Decision]:
    """Hide an integrated GPU next to a discrete one. Only on Linux: elsewhere the runtime's order is not known."""
    if machine.system != "linux" or not machine.clashing:
        return
    if any(_users(name) is not None for name in (HIDES_FIRST, *HIDES_NEXT)):
        return
    value = ",".join(str(index) for index, gpu in enumerate(machine.visible) if not gpu.integrated)
    named = [int(word) for word in re.findall(r"\d+", str("" if device is None else device))]
    # The GPUs a user names must keep their numbers when integrated ones are hidden.
    if not any(gpu.integrated for gpu in machine.visible[: max(named, default=-1) + 1]):
        why = f"hides {machine.clashing[0]} from torch: training next to it crashed (ROCm/pytorch#2241, pytorch#119637)"
        yield Decision(HIDES_FIRST, value, "set", why)
    else:
        yield Decision(HIDES_FIRST, value, "skip", f"device={device} would then mean another GPU")


def _own_caches(machine: Machine) -> Iterator[Decision]:
    """Give every process of a distributed training MIOpen folders of its own: shared ones lock and break.

    Machines may share the home folder: where there are several, each has its own, for Triton's kernels too.
    """
    rank, here = os.environ.get(RANK_VARIABLE, ""), place()
    if machine.build != "hip" or not rank.isdigit():
        return
    top = cache_folder() / "miopen" / (machine.hip or "unknown") / f"rank{rank}"
    if here is not None and here.spans_machines:
        node = re.sub(r"[^\w.-]", "_", platform.node()) or "node"
        top = cache_folder() / "nodes" / node / top.relative_to(cache_folder())
        if _users(_TRITON) is None:
            why = "keeps Triton's kernels apart from those of other machines (prime-rl#2305, pytorch#173679)"
            yield Decision(_TRITON, str(cache_folder() / "nodes" / node / "triton"), "set", why, folder=True)
    for name, folder in _CACHES.items():
        if _users(name) is None:
            why = f"keeps the database of rank {rank} apart from the others' (ROCm/MIOpen#2214, pytorch#60477)"
            yield Decision(name, str(top / folder), "set", why, folder=True)


def late(decisions: list[Decision]) -> list[Decision]:
    """Return the variables to set whose moment has passed for certain."""
    return [d for d in decisions if d.action == "set" and d.name not in _ours and passed(moment(d.name))]


def early(decisions: list[Decision]) -> list[Decision]:
    """Return the variables that are read before a run's first convolution, and do not depend on the run's arguments."""
    return [d for d in decisions if d.name != HIDES_FIRST and moment(d.name) in (Moment.TORCH, Moment.RUNTIME)]


@contextmanager
def applied(decisions: list[Decision], *, needs_gpu: bool = True) -> Iterator[list[str]]:
    """Set the variables that `plan` decided to set, and put everything back at the end. Nested use counts.

    Args:
        decisions: From `plan`.
        needs_gpu: The run is for the GPU, so that a missing required variable ends it.

    Yields:
        One line for each variable that cannot take effect any more, or perhaps not, with what to do about it, or that
        another run of this process holds at another value.

    Raises:
        StackError: A variable came too late without which the card cannot train.
    """
    missed = late(decisions)
    lines = [_too_late(decision) for decision in missed]
    if needs_gpu and any(decision.required for decision in missed):
        raise StackError("\n".join(lines))
    wanted = [d for d in decisions if d.action == "set" and d not in missed]
    if vendor_may_have_run():
        lines += [
            f"{d.name}={d.value} is set now and has no effect if a convolution has run in this process before: it is "
            f"read {Moment.MIOPEN.value}. It would: {d.reason}"
            for d in wanted
            if moment(d.name) is Moment.MIOPEN and d.name not in _ours
        ]
    with ExitStack() as held:
        for d in wanted:
            problem = _hold(d)
            if problem:
                lines.append(problem)
            else:
                held.callback(_let_go, d.name)
        yield lines


def _hold(decision: Decision) -> str | None:
    """Set a variable for one more holder; return why not, where it is not."""
    name, value = decision.name, decision.value
    with _lock:
        if _ours.get(name, value) != value:
            return f"{name}={value} is not set: another run of this process holds it at {_ours[name]}"
        if decision.folder:
            try:
                Path(value).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                return f"{name} is not set: {value} cannot be made ({error.strerror or error})"
        if name not in _ours:
            os.environ[name] = _ours[name] = value
        _holders[name] += 1
    return None


def _let_go(name: str) -> None:
    with _lock:
        _holders[name] -= 1
        if not _holders[name]:
            del _holders[name]
            if _ours.pop(name, None) == os.environ.get(name):
                os.environ.pop(name, None)


def _too_late(decision: Decision) -> str:
    when = moment(decision.name)
    read = f" It is read {when.value}, and that has happened in this process." if when else ""
    weight = " This card cannot train without it." if decision.required else ""
    return (
        f"{decision.name}={decision.value} comes too late.{read} It would: {decision.reason}.{weight} "
        f"Set it in the shell before Python starts, or use `yolo-rocm train`, which does so itself."
    )


def _unmet(when: When, machine: Machine, key: str, targets: Sequence[str]) -> str:
    """Return why a condition does not hold, or an empty string."""
    if when.os and not set(when.os) & {machine.system, *machine.overlays}:
        return f"only on {' or '.join(when.os)}, this is {machine.system}"
    for word, wanted, have in (("torch", when.torch, machine.torch), ("ROCm", when.hip, machine.hip)):
        if not wanted:
            continue
        try:
            specifier = SpecifierSet(wanted, prereleases=True)
        except InvalidSpecifier:
            raise PresetError(f"{key}: {wanted!r} is not a version specifier such as '<2' or '>=5.2,<5.3'.") from None
        if have is None or have not in specifier:
            return f"only with {word} {wanted}, this is {have or f'no {word}'}"
    # Where torch's list of targets cannot be read, it counts as having none for the card: that of the machine, or where
    # the operating system does not say, as in some containers, that of the preset.
    if when.own_kernels is not None:
        gfx = (machine.gpu.gfx if machine.gpu is not None else None) or next(iter(targets), None)
        if gfx is None:
            return "only for a card whose target is known"
        if (gfx in machine.archs) != when.own_kernels:
            return f"torch has {'no ' if when.own_kernels else ''}kernels of its own for {gfx}"
    if when.kernels_for is not None and when.kernels_for not in machine.archs:
        return f"torch has no {when.kernels_for} kernels" if machine.archs else "torch's list of targets cannot be read"
    return ""
