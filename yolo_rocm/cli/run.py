"""`yolo-rocm run`: an existing script or `yolo` command, unchanged, under a preset."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ..preset.cfg_file import parse
from .options import PresetName


class OptionsBeforeTarget(TyperCommand):
    """Takes its own options before the target only: everything from the target on belongs to it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `--` before the target, so that nothing behind it is read as an option of ours."""
        taking = {option for parameter in self.params for option in parameter.opts if option.startswith("--")}
        position = 0
        while position < len(args):
            word = args[position]
            if word in taking and word != "--help":
                position += 2
            elif word.startswith("-m") or word == "-" or not word.startswith("-"):
                return super().parse_args(ctx, [*args[:position], "--", *args[position:]])
            else:
                position += 1
        return super().parse_args(ctx, args)


def run(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT.py | -m MODULE | yolo [ARGS]...",
            help="What to run. Everything from here on goes to it untouched.",
            show_default=False,
        ),
    ],
    preset: PresetName = "auto",
    rocm: Annotated[
        list[str] | None,
        typer.Option(metavar="SECTION.KEY=VALUE", help="A value over the preset's; may be given more than once."),
    ] = None,
) -> None:
    """Run an existing script, module or `yolo` command unchanged, under a preset."""
    from ..launch.run_script import run_target

    if target == ["-m"]:
        raise typer.BadParameter("give a module after -m")
    run_target(target, preset, parse([f"rocm.{word}" for word in rocm or []]).get("rocm"))
