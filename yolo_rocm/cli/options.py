"""What the commands share: options, where they print, and how they read `key=value` words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import typer
from rich.table import Column, Table
from rich.text import Text

from ..utils.console import console

out: Final = console()
AsJson = Annotated[bool, typer.Option("--json", help="Print data as JSON, and nothing else, to stdout.")]
PresetName = Annotated[str, typer.Option(help="A preset's name, `auto`, or a YAML file.")]

MODES: Final = ("train", "val", "predict", "track", "export", "benchmark")
KEY_VALUES: Final = {"ignore_unknown_options": True, "allow_extra_args": True}
BENCH_FOLDER: Final = "yolo-rocm-bench"


def in_our_order(words: list[str]) -> list[str]:
    """Turn Ultralytics' `TASK MODE ...` into `MODE task=TASK ...`; everything else stays as it is.

    `detect train data=x.yaml` becomes `train task=detect data=x.yaml`.
    """
    from ..preset.cfg_file import TASKS

    if len(words) > 1 and words[0] in TASKS and words[1] in MODES:
        return [words[1], f"task={words[0]}", *words[2:]]
    return words


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


def is_slow(given: dict[str, Any]) -> bool:
    """Return whether measuring a model at this size is known to take long: from a megapixel a batch on, a minute."""
    return bool(given["batch"] * given["imgsz"] ** 2 >= 2**20)
