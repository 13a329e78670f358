"""A plan as lines of a shell, bash or PowerShell, and its execution, command by command."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ..errors import ConfigError
from ..hardware.files import text
from ..hardware.stack import torch_build
from .plan import ENVIRONMENT, InstallPlan, InstallStep
from .table import table

# What a shell takes literally without quotes, and what it would not take literally between double ones.
_PLAIN: Final = re.compile(r"[\w./\\:=+,-]+")
# As venv and uv write it into the settings of an environment.
_VERSION: Final = re.compile(r"^version(?:_info)?\s*=\s*(\d+\.\d+)", re.MULTILINE)
_SPECIAL: Final = {"windows": '["$`]', "": r'["$`!\\]'}


def line(words: Sequence[str], system: str) -> str:
    """Return a command as it is typed: in PowerShell on Windows, in bash elsewhere."""
    return " ".join(word if word == "$USER" or _plain(word, system) else _quoted(word, system) for word in words)


def _plain(word: str, system: str) -> bool:
    return bool(_PLAIN.fullmatch(word)) and (system == "windows" or "\\" not in word)


def _quoted(word: str, system: str) -> str:
    """Return a word in quotes: double ones where they do, because pages have them."""
    if not re.search(_SPECIAL.get(system, _SPECIAL[""]), word):
        return f'"{word}"'
    return "'" + word.replace("'", "''") + "'" if system == "windows" else shlex.quote(word)


def script(plan: InstallPlan, system: str) -> list[str]:
    """Return a plan as lines that a shell runs as they are: what people should know is comments."""
    lines = [f"# {told}" for told in plan.about]
    lines.append(f"# torch: {plan.title}: {plan.why} ({plan.source})")
    for other in plan.others:
        lines.append(f"# also possible: --stack {other}")
    number = 0
    for step in plan.steps:
        if step.text:
            number += 1
            source = f" ({step.source})" if step.source else ""
            lines += ["", f"# {number}. {step.text}{', by hand' if step.by_hand and step.words else ''}{source}"]
        if step.words:
            lines.append(f"{'#    ' if step.by_hand else ''}{line(step.words, system)}")
    return lines


def to_run(plan: InstallPlan, environment: str = ENVIRONMENT, folder: Path | None = None) -> list[InstallStep]:
    """Return the steps that can be run for a person, without those that are done already.

    Raises:
        ConfigError: The environment exists, with another Python or another torch than the plan needs.
    """
    steps = [step for step in plan.steps if step.words and not step.by_hand]
    place = (folder or Path()) / environment
    if not place.exists():
        return steps
    needed = next(step.python for step in steps if step.python)
    written = _VERSION.search(text(place / "pyvenv.cfg"))
    if written is None or written.group(1) != needed:
        raise ConfigError(
            f"{environment} is there already, with {f'Python {written.group(1)}' if written else 'no Python'}; this "
            f"needs Python {needed}. Remove it, or give another folder with --env."
        )
    torch, build = _torch_in(place)
    if table().stacks[plan.stack].targets and torch and build != "hip":  # which would satisfy pip, and stay
        raise ConfigError(
            f"{environment} is there already, with torch {torch}, which is a {build} build and sees no AMD GPU. "
            "Remove it, or give another folder with --env."
        )
    return [step for step in steps if step.python is None]


def _torch_in(environment: Path) -> tuple[str | None, str | None]:
    """Return the version and the build of the torch in an environment."""
    for folder in (*environment.glob("lib/python*/site-packages/torch"), environment / "Lib/site-packages/torch"):
        if folder.is_dir():
            return torch_build(folder)[:2]
    return None, None


def run(steps: Sequence[InstallStep], say: Callable[[str], None], system: str) -> int:
    """Run commands one after the other; return the exit code of the last one, the doctor's verdict.

    Raises:
        ConfigError: One of those before it failed.
    """
    code = 0
    for number, step in enumerate(steps, 1):
        say(f"\n[{number} of {len(steps)}] {line(step.words, system)}")
        try:
            code = subprocess.run(step.words, check=False).returncode
        except OSError as error:
            raise ConfigError(f"cannot start {step.words[0]}: {error.strerror or error}.") from None
        if code and number < len(steps):
            raise ConfigError(
                f"command {number} of {len(steps)} failed with exit code {code}, its own words are above: "
                f"{line(step.words, system)}"
            )
    return code
