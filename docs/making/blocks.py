"""Pages are written by hand; what can be derived from the code is between two marks and is made here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

Maker = Callable[[], str]
_BLOCK: Final = re.compile(
    r"<!-- begin (?P<name>[\w-]+), made by docs/generate\.py -->\n.*?<!-- end (?P=name) -->", re.DOTALL
)
_BEGIN: Final = re.compile(r"<!-- begin ([\w-]+)")


class BlockError(Exception):
    """A page names a block that nothing makes, or does not end one."""


def block(name: str, text: str) -> str:
    """Return a block with its marks."""
    return f"<!-- begin {name}, made by docs/generate.py -->\n{text.strip()}\n<!-- end {name} -->"


def filled(page: str, makers: Mapping[str, Maker]) -> str:
    """Return a page with every block made again.

    Raises:
        BlockError: A block has no maker, or no end.
    """

    def renew(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in makers:
            raise BlockError(f"nothing makes the block '{name}'. Known: {', '.join(makers)}.")
        return block(name, makers[name]())

    wanted, whole = _BEGIN.findall(page), [match["name"] for match in _BLOCK.finditer(page)]
    if wanted != whole:
        raise BlockError(f"blocks begun: {', '.join(wanted)}; blocks with a right mark and an end: {', '.join(whole)}.")
    return _BLOCK.sub(renew, page)
