"""Environment variables of a preset: which ones apply here, set in time, and put back."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from .errors import PresetError
from .hardware import Machine
from .preset import Preset, When


@dataclass(frozen=True)
class Decision:
    """What becomes of one variable of a preset."""

    name: str
    value: str
    action: str  # "set", "skip" (a condition does not hold) or "keep" (the user has set it)
    reason: str


def plan(preset: Preset, machine: Machine) -> list[Decision]:
    """Decide for every variable of `preset`, without changing anything. What the user has set wins."""
    decisions = []
    for name, variable in preset.env.items():
        unmet = _unmet(variable.when, machine, f"env.{name}.when")
        current = os.environ.get(name)
        if unmet:
            decisions.append(Decision(name, variable.value, "skip", unmet))
        elif current is not None:
            decisions.append(Decision(name, current, "keep", "set in the environment, which wins"))
        else:
            decisions.append(Decision(name, variable.value, "set", variable.why))
    return decisions


def too_late() -> bool:
    """Tell whether the GPU runtime has read its variables: torch started it in this process."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


@contextmanager
def applied(decisions: list[Decision]) -> Iterator[list[str]]:
    """Set the variables that `plan` decided to set, and put everything back at the end.

    Yields:
        One line for each variable that could not take effect any more, with what to do about it.
    """
    wanted = [d for d in decisions if d.action == "set"]
    if wanted and too_late():
        yield [
            f"{d.name}={d.value} is not set: the GPU runtime of this process has started and no longer reads it. "
            f"Set it in the shell (`export {d.name}={d.value}`) or start with `yolo-rocm train`. It would: {d.reason}"
            for d in wanted
        ]
        return
    for d in wanted:
        os.environ[d.name] = d.value
    try:
        yield []
    finally:
        for d in wanted:
            if os.environ.get(d.name) == d.value:
                del os.environ[d.name]


def _unmet(when: When, machine: Machine, key: str) -> str:
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
    return ""
