"""An error in one line, for messages and records."""

from __future__ import annotations

from typing import Final
from unicodedata import category

_LONGEST: Final = 300


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without Ultralytics' pictures; its type where it has no message."""
    text = "".join(letter for letter in str(error) if category(letter) != "So" and letter != "\ufe0f")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:_LONGEST] if lines else type(error).__name__


def typed_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message."""
    name = type(error).__name__
    line = first_line(error)
    return name if line == name else f"{name}: {line}"
