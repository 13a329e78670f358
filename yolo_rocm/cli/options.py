"""What the commands share: options, where they print, and how they read `key=value` words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Column, Table
from rich.text import Text
from typer.core import TyperGroup

from ..utils.console import console

out: Final = console()


def preset_names(incomplete: str) -> list[str]:
    """Return the presets that begin like this, which a shell offers while a command is typed."""
    from ..preset.files import presets

    return [name for name in ("auto", *presets()) if name.startswith(incomplete)]


AsJson = Annotated[bool, typer.Option("--json", help="Print data as JSON, and nothing else, to stdout.")]
PresetName = Annotated[str, typer.Option(help="A preset's name, `auto`, or a YAML file.", autocompletion=preset_names)]

MODES: Final = ("train", "val", "predict", "track", "export", "benchmark")
KEY_VALUES: Final = {"ignore_unknown_options": True, "allow_extra_args": True}
BENCH_FOLDER: Final = "yolo-rocm-bench"


class PlainFlags(TyperGroup):
    """Commands whose help shows flags as they are typed; typer 0.29 would write `--run <bool>`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in self.commands.values():
            command.get_params = partial(_without_types, command.get_params)  # type: ignore[method-assign]

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the group."""
        return _without_types(super().get_params, ctx)


def _without_types(get_params: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:
    params = get_params(ctx)
    for each in params:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return params


def check_writable(file: Path | None, option: str) -> None:
    """Try before a long run whether its file can be written.

    Args:
        file: Where; None for a file in this folder.
        option: What names it.

    Raises:
        ConfigError: It cannot.
    """
    from ..bench.checks import folder
    from ..errors import ConfigError

    if file is not None and file.is_dir():
        raise ConfigError(f"{option} {file} is a folder. Name a file in it.")
    folder(Path() if file is None else file.parent, f"the folder of {option}")


# Words of `yolo` that are no modes.
_OTHER_WORDS: Final = {"help": "--help", "version": "--version", "checks": "env"}


def in_our_order(words: list[str]) -> list[str]:
    """Turn Ultralytics' `TASK MODE ...` into `MODE task=TASK ...`; everything else stays as it is.

    `detect train data=x` becomes `train task=detect data=x`, and so does `task=detect mode=train data=x`.

    Raises:
        ConfigError: A task without a mode, or with an unknown one.
    """
    from ..errors import ConfigError, nearest
    from ..preset.cfg_file import TASKS

    if len(words) > 1 and words[0] in TASKS and words[1] in MODES:
        return [words[1], f"task={words[0]}", *words[2:]]
    if words and ("=" in words[0] or words[0] in TASKS):
        mode = next((word for word in words if word.startswith("mode=")), "")
        if mode.removeprefix("mode=") in MODES:
            return [mode.removeprefix("mode="), *(word for word in words if word != mode)]
        after_task = words[1:2] if words[0] in TASKS else []
        given = mode.removeprefix("mode=") or "".join(word for word in after_task if word.isalpha())
        if given:
            raise ConfigError(f"unknown mode '{given}'{nearest(given, MODES)} Modes: {', '.join(MODES)}.")
        if words[0] in TASKS:
            raise ConfigError(f"'{words[0]}' is a task, and needs a mode: `yolo-rocm {words[0]} train data=...`.")
    return [_OTHER_WORDS.get(words[0], words[0]), *words[1:]] if words else words


def key_values(words: list[str] | None, defaults: dict[str, Any], first: str = "model") -> dict[str, Any]:
    """Read `[FIRST] key=value...` of bench and tune; a first word without `=` is the value of `first`."""
    from ..errors import ConfigError, nearest
    from ..preset.cfg_file import parse

    words = list(words or [])
    given = parse([f"{first}={words.pop(0)}", *words] if words and "=" not in words[0] else words)
    for key in given:
        if key not in defaults:
            raise ConfigError(f"unknown key '{key}'{nearest(key, defaults)} Allowed: {', '.join(defaults)}.")
    return {**defaults, **given}


def say(*lines: str) -> None:
    """Print lines in which brackets mean nothing."""
    for line in lines:
        out.print(line, markup=False)


def print_table(
    heads: Iterable[str], rows: Iterable[Sequence[str | Text]], title: str | None = None, cut: bool = True
) -> None:
    """Print a table in which brackets mean nothing; a cell with a style is a `Text`.

    Without `cut` no cell is wrapped or cut, however narrow the terminal is.
    """
    above = None if title is None else Text(title, style="table.title")
    table = Table(*(Column(head, no_wrap=not cut) for head in heads), box=None, pad_edge=False, title=above)
    for row in rows:
        table.add_row(*(Text(each) if isinstance(each, str) else each for each in row))
    out.print(table)


def cell(value: float | None, digits: int, unit: str = "") -> str:
    """Return a number for a table; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}{unit}"
