"""The few pieces of Markdown the pages need."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; a bar or a line break inside a cell cannot break it."""
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += [f"| {' | '.join(cell(value) for value in row)} |" for row in rows]
    return "\n".join(lines)


def cell(value: object) -> str:
    """Return one cell of a table."""
    return " ".join(str(value).split()).replace("|", "\\|")


def escaped(text: object) -> str:
    """Return text of strangers: what would be a link, an image, a tag or code is shown as it was written."""
    return re.sub(r"[\\`\[\]<>]", r"\\\g<0>", str(text))


def code(text: object) -> str:
    """Return inline code, also of text that holds backticks."""
    words = " ".join(str(text).split())
    fence = "`" * (1 + max(map(len, re.findall("`+", words)), default=0))
    return f"{fence} {words} {fence}" if len(fence) > 1 else f"`{words}`"


def first_paragraph(thing: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def joined(words: Iterable[str]) -> str:
    """Return words in the order they come, each once, with commas."""
    return ", ".join(dict.fromkeys(words))


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
