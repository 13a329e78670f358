"""What a shell offers while a command is typed: presets, and the arguments of Ultralytics, read from its files.

`yolo-rocm --install-completion` turns it on. Nothing here may import torch or Ultralytics: a shell waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer


def preset_names(incomplete: str) -> list[str]:
    """Return the presets that begin like this."""
    from ..preset.files import presets

    return [name for name in ("auto", *presets()) if name.startswith(incomplete)]


def arguments(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return `key=value` words that begin like this: keys first, then the values of those that have names.

    Bash takes a word apart at `=`: a value comes alone, with its key among the words before it. Other shells do not.
    """
    before = [str(word) for word in ctx.params.get("words") or []]
    key, separator, value = incomplete.partition("=")
    if separator:
        return [f"{key}={each}" for each in _values(key, value)]
    if not incomplete and before and (values := _values(before[-1], "")):  # bash, right behind `=`
        return values
    if before[-1:] == ["="]:
        return _values(before[-2] if len(before) > 1 else "", incomplete)
    return sorted(f"{name}=" for name in ("preset", *_keys()) if name.startswith(incomplete))


def _values(key: str, begin: str) -> list[str]:
    named: dict[str, Any] = {"preset": lambda: ("auto", *_presets()), "data": _files, "model": _files, "task": _tasks}
    return sorted({each for each in named.get(key, tuple)() if each.startswith(begin)})


def _presets() -> list[str]:
    return preset_names("")


def _tasks() -> list[str]:
    from ..preset.cfg_file import TASKS

    return list(TASKS)


def _files() -> Iterator[str]:
    yield from (path.name for pattern in ("*.yaml", "*.yml", "*.pt") for path in Path().glob(pattern))


def _keys() -> list[str]:
    from ..preset.yolo_defaults import yolo_defaults

    return list(yolo_defaults())
