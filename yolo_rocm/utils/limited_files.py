"""YAML and JSON that anybody may have written: size and depth are limited, and aliases refused, before it is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

from .error_text import first_line

# A configuration has some hundred values, and known_failures.yaml, the largest file of ours, some thousand.
_YAML_BYTES: Final = 512 * 2**10
_DEPTH: Final = 32
_LONGEST: Final = 20_000  # characters of one value: a number of 100,000 digits takes a second to read
_JSON_BYTES: Final = 16 * 2**20
_OF_PYTHON: Final = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError)
# Choosing a preset reads all of them; libyaml, where PyYAML was built with it, does so ten times faster.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class UnreadableError(ValueError):
    """Text that is not what it should be, or too much of it. The message is one line and says which."""


def read_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        OSError: It cannot be opened.
        UnreadableError: It is not YAML, larger or deeper than any configuration, or has aliases in it.
    """
    return parse_yaml(_text(path, _YAML_BYTES))


def parse_yaml(text: str) -> Any:
    """Read YAML; see `read_yaml`."""
    if len(text) > _YAML_BYTES:
        raise UnreadableError(f"more than {_YAML_BYTES // 2**10} KiB")
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_LOADER):  # which holds no tree
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            _refuse(event, depth)
        return yaml.load(text, Loader=_LOADER)
    except UnreadableError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise UnreadableError(f"not YAML: {', '.join(filter(None, (error.context, error.problem)))}{where}") from None
    except (yaml.YAMLError, *_OF_PYTHON) as error:
        # A date without such a day, `!!bool foo`: the safe loader lets Python's own errors pass.
        raise UnreadableError(f"not YAML: {first_line(error)}") from None


def read_json(path: Path) -> Any:
    """Read a JSON file of ours.

    Raises:
        OSError: It cannot be opened.
        UnreadableError: It is not JSON, or larger or deeper than what we write.
    """
    text = _text(path, _JSON_BYTES)
    try:
        return json.loads(text)
    except RecursionError:
        raise UnreadableError("nested too deep") from None
    except ValueError as error:
        raise UnreadableError(f"not JSON: {first_line(error)}") from None


def _refuse(event: yaml.Event, depth: int) -> None:
    """Refuse what no configuration needs: a few aliases are billions of values, as the second is ten of the first."""
    if isinstance(event, yaml.AliasEvent):
        raise UnreadableError(f"*{event.anchor} repeats another value: write it out")
    if isinstance(event, yaml.ScalarEvent) and len(event.value) > _LONGEST:
        raise UnreadableError(f"a value of more than {_LONGEST:,} characters")
    if depth > _DEPTH:
        raise UnreadableError(f"nested deeper than {_DEPTH}")


def _text(path: Path, most: int) -> str:
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise UnreadableError(f"larger than {most // 2**10} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"not UTF-8: {error.reason} at byte {error.start}") from None
