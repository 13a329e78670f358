"""`yolo-rocm presets`: all presets, or every final value of one with what set it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ..utils.console import print_json
from .options import AsJson, preset_names, print_table, say

if TYPE_CHECKING:
    from ..hardware import Machine


def presets(
    name: Annotated[
        str | None, typer.Argument(help="A preset's name, `auto`, or a YAML file.", autocompletion=preset_names)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the presets, or print every final value of one with the file that set it."""
    from ..hardware import detect
    from ..preset import variables
    from ..preset.resolve import resolve

    machine = detect()
    if name is None:
        _list_presets(machine, as_json)
        return
    settings = resolve(name, machine=machine)
    decisions = variables.plan(settings.preset, machine)
    if as_json:
        told = [{key: getattr(each, key) for key in ("name", "value", "action", "reason")} for each in decisions]
        print_json({**settings.as_dict(), "variables": told})
        return
    say(settings.why, "")
    print_table(("key", "value", "set by"), ((key, str(value), origin) for key, value, origin in settings.rows()))
    say(*(f"{each.name}={each.value}: {each.action} ({each.reason})" for each in decisions))
    if "batch" in settings.preset.train:
        say("train.batch is for one GPU: on several it is multiplied by their number")
    say(*settings.notes)


def _list_presets(machine: Machine, as_json: bool) -> None:
    from ..preset.listing import grouped
    from ..preset.resolve import resolve

    why = resolve("auto", machine=machine).why
    if as_json:
        listed = [{"group": group, **asdict(row)} for group, rows in grouped(machine) for row in rows]
        print_json({"presets": listed, "auto": why})
        return
    table: list[tuple[str | Text, ...]] = []
    for group, rows in grouped(machine):
        head = (Text(group, style="bold"),)
        table += [(), head] if table else [head]
        table += [(f"  {row.name}", " ".join(row.gfx), row.title, row.evidence) for row in rows]
    print_table(("preset", "gfx", "for", "evidence"), table)
    say(f"\nauto here: {why}")
