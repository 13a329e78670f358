"""The public names with their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Any, Final

import yolo_rocm

from .markdown import code, table

_WIDTH: Final = 100
# The sections of a Google docstring that are lists of names.
_SECTIONS: Final = {"Args": "argument", "Attributes": "attribute", "Raises": "error"}
_ITEM: Final = re.compile(r"^    (?P<name>[*\w.]+)(?: \([^)]*\))?: (?P<text>.*)$")


def api() -> str:
    """Return the public functions, the classes that are public or returned by them, and the errors."""
    public = {name: getattr(yolo_rocm, name) for name in sorted(yolo_rocm.__all__) if name != "__version__"}
    errors = {name: value for name, value in public.items() if _is_error(value)}
    classes = {name: value for name, value in public.items() if inspect.isclass(value) and name not in errors}
    functions = {name: value for name, value in public.items() if name not in {**errors, **classes}}
    classes = dict(sorted({**_returned(functions.values()), **classes}.items()))
    parts = ["## Functions", *(_function(name, value) for name, value in functions.items())]
    parts += ["## Classes", *(_class(name, value) for name, value in classes.items())]
    rows = ((code(name), code(value.__bases__[0].__name__), _line(value)) for name, value in errors.items())
    parts += ["## Errors", table(("error", "is a", "meaning"), rows)]
    return "\n\n".join(parts)


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def _line(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split())


def _function(name: str, function: Callable[..., Any]) -> str:
    # contextlib's decorator leaves the generator's own signature: say how it is used.
    used = "@contextmanager\n" if inspect.isgeneratorfunction(inspect.unwrap(function)) else ""
    shown = f"```python\n{used}{signature(name, function)}\n```"
    return f"### `{name}`\n\n{shown}\n\n{prose(inspect.getdoc(function) or '')}"


def _returned(functions: Iterable[Callable[..., Any]]) -> dict[str, type]:
    """Return the classes of ours that functions return, by name."""
    found = {}
    for function in functions:
        source = inspect.unwrap(function)
        name = str(inspect.signature(source).return_annotation)
        value = source.__globals__.get(name)
        if inspect.isclass(value) and value.__module__.startswith("yolo_rocm"):
            found[name] = value
    return found


def _class(name: str, kind: type) -> str:
    parts = [f"### `{name}`", prose(inspect.getdoc(kind) or "")]
    rows = [(code(member), _line(value)) for member, value in _members(kind)]
    if rows:
        parts.append(table(("member", "meaning"), rows))
    return "\n\n".join(parts)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class and the classes of ours below it define."""
    ours = [each for each in reversed(kind.__mro__) if each.__module__.startswith("yolo_rocm")]
    for name, value in {name: value for each in ours for name, value in vars(each).items()}.items():
        function = getattr(value, "__func__", value)
        if name.startswith("_") or not (inspect.isfunction(function) or isinstance(value, property)):
            continue
        if inspect.getdoc(value):
            yield (name if isinstance(value, property) else f"{name}{_arguments(function)}", value)


def _arguments(function: Callable[..., Any]) -> str:
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    return f"({', '.join(names)})"


def signature(name: str, function: Callable[..., Any]) -> str:
    """Return a signature as it is written in the source; a long one has a line for each parameter."""
    found = inspect.signature(function)
    parts = [_parameter(each) for each in found.parameters.values()]
    kinds = [each.kind for each in found.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    result = "" if found.return_annotation is found.empty else f" -> {found.return_annotation}"
    line = f"def {name}({', '.join(parts)}){result}: ..."
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"def {name}(", *(f"    {part}," for part in parts), f"){result}: ..."])


def _parameter(parameter: inspect.Parameter) -> str:
    text = str(parameter).partition(":")[0].partition("=")[0].strip()  # with its stars
    if parameter.annotation is not parameter.empty:
        text += f": {parameter.annotation}"
    if parameter.default is not parameter.empty:
        text += f" = {_literal(parameter.default)}"
    return text


def _literal(value: Any) -> str:
    """Return a default as the project's style has it, the same on every system."""
    if isinstance(value, PurePath):
        return f'Path("{value.as_posix()}")'
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def prose(docstring: str) -> str:
    """Return a Google docstring as Markdown: its lists of names become tables."""
    parts: list[str] = []
    for chunk in re.split(r"\n(?=(?:Args|Attributes|Raises|Returns|Yields):\n)", f"{docstring}\n"):
        title, _, body = chunk.partition(":\n")
        if title in _SECTIONS:
            parts.append(table((_SECTIONS[title], "meaning"), _items(body)))
        elif title in ("Returns", "Yields"):
            words, _, rest = body.strip("\n").partition("\n\n")
            parts += [f"{title}: {' '.join(words.split())}", *([inspect.cleandoc(rest)] if rest else [])]
        else:
            parts.append(chunk.strip())
    return "\n\n".join(part for part in parts if part)


def _items(body: str) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for line in body.splitlines():
        found = _ITEM.match(line)
        if found:
            rows.append((code(found["name"]), found["text"]))
        elif rows and line.strip():
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}")
    return rows
