"""What to install on a machine, and why: the card's targets, a stack of the table, and the steps in order."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError, nearest
from ..hardware import Gpu, Machine, at_least
from ..utils.paths import is_clone
from .cards import is_nvidia, targets_of
from .table import Table, TorchStack, table

ENVIRONMENT: Final = ".venv"
_PROCESSORS: Final = {"amd64": "x86_64", "arm64": "aarch64"}
# Stacks that need no AMD GPU, in the order they are tried.
_WITHOUT_GPU: Final = ("cpu", "cpu-pypi")


@dataclass(frozen=True)
class InstallStep:
    """One command of an installation.

    Attributes:
        text: What it is for.
        words: The command, word by word; empty where a person has to act.
        by_hand: A person types it, because it needs their rights, or a restart.
        source: Where the need for it is documented.
        python: The Python of the environment, for the command that makes it.
    """

    text: str
    words: tuple[str, ...] = ()
    by_hand: bool = False
    source: str = ""
    python: str | None = None


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


def make_plan(
    machine: Machine,
    *,
    card: str | None = None,
    stack: str | None = None,
    index: str | None = None,
    environment: str = ENVIRONMENT,
    package: str = ".",
    processor: str | None = None,
    look: bool = True,
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
        look: Whether the Python that runs here is taken where it will do; without, the best one is named.

    Raises:
        ConfigError: There is no such card, or the stack is unknown or has nothing for this card, system or processor.
    """
    rows = table()
    processor = _processor(processor)
    targets = targets_of(machine, card)
    name, why, source, others = _choose(rows, machine, card, targets, processor, stack)
    chosen = rows.stacks[name]
    steps = (
        *_before(rows, machine, targets if chosen.targets else ()),
        _environment(chosen, machine, environment, look),
        *_packages(chosen, machine, targets, environment, package, index),
    )
    return InstallPlan(_about(machine, card, targets), name, chosen.title, why, source, others, steps)


def _choose(
    rows: Table, machine: Machine, card: str | None, targets: Sequence[str], processor: str, wanted: str | None
) -> tuple[str, str, str, tuple[str, ...]]:
    """Return a stack's name, why it is taken, the source of that, and the names of the others that would do."""
    if wanted is not None and wanted not in rows.stacks:
        raise ConfigError(f"unknown stack '{wanted}'{nearest(wanted, rows.stacks)} Known: {', '.join(rows.stacks)}.")
    reason = ""
    possible: list[str] = []
    source = rows.stacks[_WITHOUT_GPU[0]].source
    row = rows.cards_of(targets[0]) if targets else None
    if row is not None:
        possible = [name for name in row.stacks if _runs(rows.stacks[name], machine, processor, targets)]
        reason, source = row.why, row.source
        if row.stacks and not possible:
            reason = f"no wheels for {', '.join(targets)} exist on {place(machine)} with {processor}"
        elif row.stacks and possible[0] != row.stacks[0]:
            reason = f"{row.stacks[0]} has nothing for {place(machine)} with {processor}"
    elif targets:
        reason = f"no published wheel has kernels for {targets[0]}"
    elif card is not None and is_nvidia(card):
        if wanted is None and not _runs(rows.stacks["nvidia"], machine, processor, ()):
            raise ConfigError(f"{card} is an NVIDIA GPU: install the torch that pytorch.org names, then Ultralytics.")
        possible, reason = ["nvidia"], f"{card} is an NVIDIA GPU, for which plain Ultralytics will do too"
    elif card is None and _nvidia(machine):
        possible, reason = ["nvidia"], "an NVIDIA GPU was found"
    else:
        reason = "no GPU was asked for" if card is not None else "no GPU was found"
    without = [name for name in _WITHOUT_GPU if _runs(rows.stacks[name], machine, processor, ())]
    possible += [name for name in without[:1] if name not in possible]
    if wanted is not None:
        if not _runs(rows.stacks[wanted], machine, processor, targets):
            raise ConfigError(
                f"stack '{wanted}' has nothing for {', '.join(targets) or 'no GPU'} on {place(machine)} with "
                f"{processor}. Possible: {', '.join(possible) or 'none'}."
            )
        return wanted, "asked for with --stack", rows.stacks[wanted].source, tuple(p for p in possible if p != wanted)
    if not possible:
        raise ConfigError(f"configs/install.yaml has no torch for {place(machine)} with {processor}.")
    return possible[0], reason, source, tuple(possible[1:])


def first_stack(machine: Machine, target: str, processor: str | None = None) -> TorchStack | None:
    """Return the stack that a plan takes for a target on a machine; None where no wheel has kernels for it there."""
    rows = table()
    row = rows.cards_of(target)
    names = [] if row is None else row.stacks
    running = (
        rows.stacks[name] for name in names if _runs(rows.stacks[name], machine, _processor(processor), [target])
    )
    return next(running, None)


def _processor(given: str | None) -> str:
    name = (given or platform.machine()).lower()
    return _PROCESSORS.get(name, name)


def place(machine: Machine) -> str:
    """Return the system as the table has it: a Linux inside Windows is one of its own."""
    return "wsl" if "wsl" in machine.overlays else machine.system


def _runs(stack: TorchStack, machine: Machine, processor: str, targets: Sequence[str]) -> bool:
    kernels = not stack.targets or (bool(targets) and all(target in stack.targets for target in targets))
    return place(machine) in stack.systems and processor in stack.processors and kernels


def _nvidia(machine: Machine) -> bool:
    return machine.system == "linux" and any(gpu.vendor == "nvidia" for gpu in machine.gpus)


def _before(rows: Table, machine: Machine, targets: Sequence[str]) -> list[InstallStep]:
    """Return what a person has to see to; nothing for a stack without a GPU."""
    if not targets:
        return []
    steps = []
    for row in rows.before:
        needed = not row.targets or any(target in row.targets for target in targets)
        kernel = re.match(r"\d+(\.\d+)*", machine.kernel or "") if row.kernel_before else None
        new = bool(kernel and row.kernel_before and at_least(kernel.group(), row.kernel_before))
        if needed and place(machine) in row.systems and not new:
            steps.append(InstallStep(row.text, row.command, True, row.source))
    closed = sorted({node.group for node in machine.devices if not node.usable and not node.group.isdigit()})
    if closed and machine.system == "linux":
        words = ("sudo", "usermod", "--append", "--groups", ",".join(closed), os.environ.get("USER") or "$USER")
        steps.append(InstallStep("Let yourself use the card, then log out and in again", words, True))
    return steps


def _environment(stack: TorchStack, machine: Machine, folder: str, look: bool) -> InstallStep:
    """Return the command that makes the environment, with the Python that runs here where that will do."""
    running = "{}.{}".format(*sys.version_info[:2])
    version = running if look and running in stack.pythons else stack.pythons[0]
    starts = ("py", f"-{version}") if machine.system == "windows" else (f"python{version}",)
    text = f"An environment with Python {version}"
    if look and shutil.which(starts[0]) is None:
        text += f"; {starts[0]} is not here: pip install uv, then uv venv --seed --python {version} {folder}"
    return InstallStep(text, (*starts, "-m", "venv", folder), python=version)


def _packages(
    stack: TorchStack, machine: Machine, targets: Sequence[str], folder: str, package: str, index: str | None
) -> list[InstallStep]:
    pip = in_environment(machine, folder, "pip")
    extras = ",".join(f"device-{target}" for target in targets)
    options = [*stack.options]
    if index is not None:
        options = ["--index-url", index] if not options else [options[0], index]
    wanted = [each.format(extras=extras) for each in stack.packages]
    shown = "import torch; print(torch.__version__, torch.version.hip)"
    check = "Which torch it is: the second word must not be None" if stack.targets else "Which torch it is"
    python = in_environment(machine, folder, "python")
    ours = f"{package}[{','.join(stack.extras)}]"
    return [
        InstallStep("torch and torchvision", (pip, "install", *options, *wanted)),
        InstallStep(check, (python, "-c", shown)),
        InstallStep("This package and Ultralytics, which keep that torch", (pip, "install", ours)),
        InstallStep("Will training work here?", (in_environment(machine, folder, "yolo-rocm"), "doctor")),
    ]


def in_environment(machine: Machine, folder: str, program: str) -> str:
    """Return how a program of an environment is called: nothing needs to be activated."""
    return f"{folder}\\Scripts\\{program}" if machine.system == "windows" else f"{folder}/bin/{program}"


def _about(machine: Machine, card: str | None, targets: Sequence[str]) -> tuple[str, ...]:
    lines = [f"card: {card} ({', '.join(targets) or 'no AMD GPU'}), as you say"] if card else [_found(machine)]
    system = machine.distribution if machine.system == "linux" else machine.system.capitalize()
    words = [system or machine.system, f"kernel {machine.kernel}" if machine.kernel else ""]
    words += [{"wsl": "inside WSL", "container": "inside a container"}[each] for each in machine.overlays[1:]]
    lines.append(f"system: {', '.join(word for word in words if word)}; Python {machine.python}")
    if "wsl" in machine.overlays and not targets and card is None:
        lines.append('WSL does not say which card it is: name it, for instance --card "RX 7900 XTX"')
    if "container" in machine.overlays and not any(node.path == "/dev/kfd" for node in machine.devices):
        lines.append("this container has no /dev/kfd: start it with --device=/dev/kfd --device=/dev/dri")
    if machine.torch is not None:
        build = f"built for ROCm {machine.hip}" if machine.hip else f"a {machine.build} build"
        lines.append(f"in this environment already: torch {machine.torch}, {build}")
    return tuple(lines)


def _found(machine: Machine) -> str:
    def name(gpu: Gpu) -> str:
        return f"{gpu}{f', {gpu.gfx}' if gpu.gfx and gpu.gfx not in str(gpu) else ''}"

    counts = Counter(map(name, machine.gpus))
    cards = (f"{count} x {card}" if count > 1 else card for card, count in counts.items())
    return f"card: {'; '.join(cards)}" if machine.gpus else "card: none found"


def as_dict(plan: InstallPlan) -> dict[str, Any]:
    """Return a plan as data."""
    steps = [
        {"text": step.text, "command": list(step.words), "by_hand": step.by_hand, "source": step.source}
        for step in plan.steps
    ]
    return {
        "schema": 1,
        "about": list(plan.about),
        "stack": plan.stack,
        "why": plan.why,
        "source": plan.source,
        "others": list(plan.others),
        "steps": steps,
    }


def package_source(folder: Path | None = None) -> str:
    """Return where pip takes this package from: the clone we are in, the one it was installed from, or its name."""
    import importlib.metadata
    import json
    from urllib.parse import unquote, urlparse
    from urllib.request import url2pathname

    if is_clone(folder or Path()):
        return "."
    try:
        recorded = importlib.metadata.distribution("yolo-rocm").read_text("direct_url.json")
        clone = Path(url2pathname(unquote(urlparse(json.loads(recorded or "{}").get("url", "")).path)))
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return "yolo-rocm"
    return str(clone) if clone.is_absolute() and is_clone(clone) else "yolo-rocm"
