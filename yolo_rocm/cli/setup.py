"""`yolo-rocm setup`: the commands that install torch, this package and Ultralytics for the card of this machine."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..utils.console import print_json
from .options import AsJson, out, preset_names, say


def setup(
    card: Annotated[
        str | None,
        typer.Option(
            help="A card as people call it, a target such as gfx1100, or cpu; by default the one found here.",
            autocompletion=preset_names,
        ),
    ] = None,
    stack: Annotated[
        str | None, typer.Option(help="A torch of configs/install.yaml in place of the one for the card.")
    ] = None,
    env: Annotated[str, typer.Option(help="Folder of the environment.")] = ".venv",
    index: Annotated[
        str | None,
        typer.Option(help="An index in place of the stack's own: a mirror, or nightly builds."),
    ] = None,
    execute: Annotated[bool, typer.Option("--run", help="Run the commands, after asking.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the commands that install everything for this card, as a script; with --run, run them.

    It reads the machine without torch and without Ultralytics: install this package alone, then type this.
    """
    from ..errors import ConfigError
    from ..hardware import detect
    from ..install.plan import make_plan, package_source
    from ..install.shell import run, script

    machine = detect()
    running = machine.python.rpartition(".")[0]
    plan = make_plan(
        machine, card=card, stack=stack, index=index, environment=env, package=package_source(), python=running
    )
    if as_json:
        if execute:
            raise typer.BadParameter("--json prints, --run executes: give one of them")
        print_json({"schema": 1, **dataclasses.asdict(plan)})
        return
    for line in script(plan, machine.system):
        out.print(Text(line, style="dim" if line.startswith("#") else ""))
    if not execute:
        return
    if Path(env).exists():  # with a torch that pip would keep, and perhaps another Python
        raise ConfigError(f"{env} is there already. Remove it, or give another folder with --env.")
    steps = plan.commands
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("there is nobody to ask: add --yes to run the commands without asking.")
        typer.confirm(f"\nRun these {len(steps)} commands?", abort=True)
    code = run(steps, say, machine.system)
    raise typer.Exit(code)
