"""The install page and the first pages: the commands that `yolo-rocm setup` prints, and the table they are from."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from yolo_rocm.hardware import Machine, family_of
from yolo_rocm.install.plan import InstallPlan, make_plan
from yolo_rocm.install.shell import line
from yolo_rocm.install.table import TorchStack, table

from .markdown import code, joined
from .markdown import table as rows_of
from .presets import family_title, shipped

LINUX: Final = Machine(system="linux", overlays=("linux",))
WINDOWS: Final = Machine(system="windows", overlays=("windows",))
_SYSTEMS: Final = {"linux": "Linux", "windows": "Windows", "macos": "macOS", "wsl": "WSL2"}


def plan(machine: Machine, card: str, stack: str | None = None) -> InstallPlan:
    """Return the plan for a card on a machine about which nothing else is known."""
    return make_plan(machine, card=card, stack=stack, processor="x86_64")


def commands(name: str, machine: Machine, card: str, stack: str | None = None) -> str:
    """Return what `yolo-rocm setup` prints for a card, without what a person does by hand, as a block with a name."""
    windows = machine.system == "windows"
    lines = []
    for step in plan(machine, card, stack).commands:
        lines += [f"# {step.text}", line(step.command, machine.system)]
    return "\n".join([f"<!-- commands: {name} -->", f"```{'powershell' if windows else 'bash'}", *lines, "```"])


def stacks() -> str:
    """Return every torch of the table: for which cards, on which systems, with which Python, from where."""
    found = table()
    rows = []
    for name, stack in found.stacks.items():
        first = [_cards(row.targets) for row in found.cards if row.stacks[:1] == (name,)]
        second = [f"second choice for {_cards(row.targets)}" for row in found.cards if name in row.stacks[1:]]
        rows.append(
            (
                code(name),
                stack.title,
                "; ".join([*first, *second]) or "no AMD GPU",
                joined(_SYSTEMS[system] for system in stack.systems),
                joined(stack.pythons),
                _link(stack.source),
            )
        )
    return rows_of(("stack", "what it is", "for", "systems", "Python, best first", "source"), rows)


def _link(address: str) -> str:
    """Return a link that says whose page it is."""
    parts = urlsplit(address)
    repository = "/".join(parts.path.split("/")[1:3])
    return f"[{repository if parts.hostname == 'github.com' else parts.hostname}]({address})"


def _cards(targets: tuple[str, ...]) -> str:
    families = dict.fromkeys(family_of(target) or target for target in targets)
    names = (family_title("cdna" if family.startswith("cdna") else family).partition(":")[0] for family in families)
    return joined(names)


def before() -> str:
    """Return what a person has to do before the installation, by system."""
    rows = (
        (
            joined(_SYSTEMS[system] for system in row.systems),
            joined(row.targets) or "all",
            row.text + (f": {code(line(row.command, row.systems[0]))}" if row.command else ""),
            _link(row.source),
        )
        for row in table().before
    )
    return rows_of(("system", "targets", "what to do", "source"), rows)


def targets() -> str:
    """Return the name of the wheels' extra for every card."""
    rows = []
    wheels: TorchStack = table().stacks["multi-arch"]
    for family, presets in shipped().items():
        for gfx in dict.fromkeys(gfx for preset in presets for gfx in preset.match.gfx):
            titles = joined(preset.title for preset in presets if gfx in preset.match.gfx)
            extra = code(f"device-{gfx}") if gfx in wheels.targets else "none is published"
            rows.append((family_title(family).partition(":")[0], titles, gfx, extra))
    return rows_of(("family", "cards", "target", "extra"), rows)
