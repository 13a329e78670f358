"""A plan as lines of a shell, bash or PowerShell, and its execution, command by command."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from ..errors import ConfigError
from .plan import InstallPlan, InstallStep

# What a shell takes literally without quotes, and what it would not take literally between double ones.
_PLAIN: Final = re.compile(r"[\w./\\:=+,-]+")
_SPECIAL: Final = {"windows": '["$`]', "": r'["$`!\\]'}


def line(words: Sequence[str], system: str) -> str:
    """Return a command as it is typed: in PowerShell on Windows, in bash elsewhere."""
    return " ".join(_quoted(word, system) for word in words)


def _quoted(word: str, system: str) -> str:
    """Return a word, in quotes where it needs some: double ones where they do, because pages have them."""
    if _PLAIN.fullmatch(word) and (system == "windows" or "\\" not in word):
        return word
    if not re.search(_SPECIAL.get(system, _SPECIAL[""]), word):
        return f'"{word}"'
    return "'" + word.replace("'", "''") + "'" if system == "windows" else shlex.quote(word)


def script(plan: InstallPlan, system: str) -> list[str]:
    """Return a plan as lines that a shell runs as they are: what people should know is comments."""
    lines = [f"# {each}" for each in plan.about]
    lines.append(f"# torch: {plan.title}: {plan.why} ({plan.source})")
    lines += [f"# also possible: --stack {other}" for other in plan.others]
    for number, step in enumerate(plan.steps, 1):
        source = f" ({step.source})" if step.source else ""
        lines += ["", f"# {number}. {step.text}{', by hand' if step.by_hand and step.command else ''}{source}"]
        if step.command:
            lines.append(f"{'#    ' if step.by_hand else ''}{line(step.command, system)}")
    return lines


def run(steps: Sequence[InstallStep], say: Callable[[str], None], system: str) -> int:
    """Run commands one after the other; return the exit code of the last one, the doctor's verdict.

    Raises:
        ConfigError: One of those before it failed.
    """
    code = 0
    for number, step in enumerate(steps, 1):
        if code:
            raise ConfigError(f"the command before failed with exit code {code}; its own words are above.")
        typed = line(step.command, system)
        say(f"\n[{number} of {len(steps)}] {typed}")
        try:
            code = subprocess.run(step.command, check=False).returncode
        except OSError as error:
            raise ConfigError(f"cannot start {step.command[0]}: {error.strerror or error}.") from None
    return code
