"""What to install on a machine, and why: the card's targets, a stack of the table, and the steps in order."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ..errors import ConfigError, nearest
from ..hardware import Machine, at_least
from ..utils.paths import is_clone
from .cards import is_nvidia, targets_of
from .table import TorchStack, table

ENVIRONMENT: Final = ".venv"
_PROCESSORS: Final = {"amd64": "x86_64", "arm64": "aarch64"}
# Stacks that need no AMD GPU, in the order they are tried.
_WITHOUT_GPU: Final = ("cpu", "cpu-pypi")


@dataclass(frozen=True)
class InstallStep:
    """One command of an installation.

    Attributes:
        text: What it is for.
        command: The command, word by word; empty where a person has to act.
        by_hand: A person types it, because it needs their rights, or a restart.
        source: Where the need for it is documented.
    """

    text: str
    command: tuple[str, ...] = ()
    by_hand: bool = False
    source: str = ""


@dataclass(frozen=True)
class InstallPlan:
    """An installation.

    Attributes:
        about: The machine in a few lines.
        stack: Name of the stack in the table.
        title: The stack in words.
        why: Why this stack.
        source: Where that is documented.
        others: Names of the other stacks that this card could take.
        steps: What to do, in order.
    """

    about: tuple[str, ...]
    stack: str
    title: str
    why: str
    source: str
    others: tuple[str, ...]
    steps: tuple[InstallStep, ...]

    @property
    def commands(self) -> list[InstallStep]:
        """The steps that need no person."""
        return [step for step in self.steps if step.command and not step.by_hand]


def make_plan(
    machine: Machine,
    *,
    card: str | None = None,
    stack: str | None = None,
    index: str | None = None,
    environment: str = ENVIRONMENT,
    package: str = ".",
    processor: str | None = None,
    python: str | None = None,
) -> InstallPlan:
    """Plan an installation.

    Args:
        machine: The machine to install on.
        card: A card in place of those that are found; `cpu` for none.
        stack: A stack of the table in place of the one for the card.
        index: Address of an index in place of the stack's own: a mirror, or AMD's nightly builds.
        environment: Folder of the virtual environment.
        package: Where pip takes this package from: a clone's folder, or its name.
        processor: `x86_64` or `aarch64`; this machine's by default.
        python: Version of the Python at hand, which is taken where it will do; without, the stack's best one is named.

    Raises:
        ConfigError: There is no such card, or the stack is unknown or has nothing for this card, system or processor.
    """
    processor = (processor or platform.machine()).lower()
    processor = _PROCESSORS.get(processor, processor)
    targets = targets_of(machine, card)
    name, why, source, others = _choose(machine, card, targets, processor, stack)
    chosen = table().stacks[name]
    version = python if python in chosen.pythons else chosen.pythons[0]
    starts = ("py", f"-{version}") if machine.system == "windows" else (f"python{version}",)
    steps = (
        *(_before(machine, targets) if chosen.targets else ()),
        InstallStep(f"An environment with Python {version}", (*starts, "-m", "venv", environment)),
        *_packages(chosen, machine, targets, environment, package, index),
    )
    return InstallPlan(_about(machine, card, targets), name, chosen.title, why, source, others, steps)


def _choose(
    machine: Machine, card: str | None, targets: Sequence[str], processor: str, asked: str | None
) -> tuple[str, str, str, tuple[str, ...]]:
    """Return a stack's name, why it is taken, the source of that, and the names of the others that would do."""
    stacks, row = table().stacks, table().cards_of(targets[0]) if targets else None
    names: tuple[str, ...] = ()
    source = stacks["cpu"].source
    if asked is not None:
        if asked not in stacks:
            raise ConfigError(f"unknown stack '{asked}'{nearest(asked, stacks)} Known: {', '.join(stacks)}.")
        names, why, source = (asked,), "asked for with --stack", stacks[asked].source
    elif row is not None:
        names, why, source = row.stacks, row.why, row.source
    elif targets:
        why = f"no published wheel has kernels for {targets[0]}"
    elif is_nvidia(card) if card else any(gpu.vendor == "nvidia" for gpu in machine.gpus):
        names, why = ("nvidia",), "plain Ultralytics will do for an NVIDIA GPU too, with the torch of pytorch.org"
    else:
        why = "no GPU was asked for" if card else "no GPU was found"
    possible = [name for name in (*names, *_WITHOUT_GPU) if _runs(stacks[name], machine, processor, targets)]
    nothing = f"has nothing for {', '.join(targets) or 'no GPU'} on {_place(machine)} with {processor}"
    if not possible or (asked and possible[0] != asked):
        raise ConfigError(f"stack '{asked}' {nothing}." if asked else f"configs/install.yaml {nothing}.")
    if names and possible[0] != names[0]:
        why = f"{names[0]} {nothing}"
    return possible[0], why, source, tuple(dict.fromkeys(possible))[1:]


def first_stack(machine: Machine, target: str, processor: str) -> TorchStack | None:
    """Return the stack that a plan takes for a target on a machine; None where no wheel has kernels for it there."""
    row = table().cards_of(target)
    stacks = [table().stacks[name] for name in (row.stacks if row else ())]
    return next((stack for stack in stacks if _runs(stack, machine, processor, [target])), None)


def _place(machine: Machine) -> str:
    """Return the system as the table has it: a Linux inside Windows is one of its own."""
    return "wsl" if "wsl" in machine.overlays else machine.system


def _runs(stack: TorchStack, machine: Machine, processor: str, targets: Sequence[str]) -> bool:
    kernels = not stack.targets or (bool(targets) and set(targets) <= set(stack.targets))
    return _place(machine) in stack.systems and processor in stack.processors and kernels


def _before(machine: Machine, targets: Sequence[str]) -> list[InstallStep]:
    """Return what a person has to see to."""
    kernel = re.match(r"\d+(\.\d+)*", machine.kernel or "")
    return [
        InstallStep(row.text, row.command, True, row.source)
        for row in table().before
        if _place(machine) in row.systems
        and (not row.targets or set(targets) & set(row.targets))
        and not (row.kernel_before and kernel and at_least(kernel.group(), row.kernel_before))
    ]


def _packages(
    stack: TorchStack, machine: Machine, targets: Sequence[str], folder: str, package: str, index: str | None
) -> list[InstallStep]:
    programs = f"{folder}\\Scripts\\" if machine.system == "windows" else f"{folder}/bin/"  # nothing is activated
    extras = ",".join(f"device-{target}" for target in targets)
    options = [*(stack.options[:1] or ["--index-url"]), index] if index else stack.options
    torch = [each.format(extras=extras) for each in stack.packages]
    shown = "import torch; print(torch.__version__, torch.version.hip)"
    check = "Which torch it is: the second word must not be None" if stack.targets else "Which torch it is"
    ours = f"{package}[{','.join(stack.extras)}]"
    return [
        InstallStep("torch and torchvision", (f"{programs}pip", "install", *options, *torch)),
        InstallStep(check, (f"{programs}python", "-c", shown)),
        InstallStep("This package and Ultralytics, which keep that torch", (f"{programs}pip", "install", ours)),
        InstallStep("Will training work here?", (f"{programs}yolo-rocm", "doctor")),
    ]


def _about(machine: Machine, card: str | None, targets: Sequence[str]) -> tuple[str, ...]:
    counts = Counter(f"{gpu}{f', {gpu.gfx}' if gpu.gfx and gpu.gfx not in str(gpu) else ''}" for gpu in machine.gpus)
    cards = "; ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items()) or "none found"
    if card:
        cards = f"{card} ({', '.join(targets) or 'no AMD GPU'}), as you say"
    elif "wsl" in machine.overlays and not targets:
        cards += '; WSL does not say which card it is: name it, for instance --card "RX 7900 XTX"'
    system = " in ".join([machine.distribution or machine.system, *machine.overlays[1:]])
    return f"card: {cards}", f"system: {system}, kernel {machine.kernel or 'not known'}; Python {machine.python}"


def package_source(folder: Path | None = None) -> str:
    """Return where pip takes this package from: the clone we are in, the one it was installed from, or its name."""
    if is_clone(folder or Path()):
        return "."
    with suppress(importlib.metadata.PackageNotFoundError):
        recorded = json.loads(importlib.metadata.distribution("yolo-rocm").read_text("direct_url.json") or "{}")
        address = urlsplit(recorded.get("url", ""))
        if address.scheme == "file":
            return url2pathname(address.path)
    return "yolo-rocm"
