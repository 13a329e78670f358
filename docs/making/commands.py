"""The command line, command by command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from yolo_rocm.cli.main import app

from .markdown import code, table


def all_commands() -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, by its whole name; groups are walked."""
    yield from _walk("", typer.main.get_command(app))


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
        return
    for word, each in below.items():
        yield from _walk(f"{name} {word}".strip(), each)


def commands() -> str:
    """Return each command with its arguments, options and example."""
    return "\n\n".join(_command(name, command) for name, command in all_commands())


def _command(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    words = [p.metavar or p.name.upper() for p in arguments]
    words = [word if p.required or "[" in word else f"[{word}]" for word, p in zip(words, arguments, strict=True)]
    options = [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]
    usage = f"yolo-rocm {name} {'[OPTIONS] ' if options else ''}{' '.join(words)}".strip()
    about = " ".join((command.help or "").split())
    parts = [f"## `{name}`", about, f"```text\n{usage}\n```"]
    if options:
        rows = ((code(", ".join([*p.opts, *p.secondary_opts])), p.help or "") for p in options)
        parts.append(table(("option", "meaning"), rows))
    if command.epilog:
        parts.append(f"```bash\n{command.epilog.removeprefix('Example: ')}\n```")
    return "\n\n".join(parts)
