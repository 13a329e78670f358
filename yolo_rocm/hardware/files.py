"""Small readers of kernel files; whatever is missing or rubbish reads as nothing."""

from __future__ import annotations

from pathlib import Path


def text(path: Path) -> str:
    """Return a file's text without surrounding white space, or an empty string."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return ""


def number(path: Path) -> int | None:
    """Return the number in a file, decimal or with `0x`, or None."""
    return whole(text(path))


def whole(word: str) -> int | None:
    """Return a whole number, decimal or with `0x`, or None. Signs count, other alphabets' digits do not."""
    try:
        return int(word, 16 if word.lower().startswith("0x") else 10) if word.isascii() else None
    except ValueError:
        return None


def properties(path: Path) -> dict[str, int]:
    """Read a `name value` file of KFD."""
    pairs = (line.split() for line in text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isascii() and pair[1].isdigit()}


def in_order(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the entries of a folder whose names end in a number, by that number: 2 before 10."""

    def key(path: Path) -> tuple[int, str]:
        digits = path.name.lstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-")
        return (int(digits) if digits.isascii() and digits.isdigit() else 1 << 30, path.name)

    try:
        return sorted(folder.glob(pattern), key=key)
    except OSError:
        return []
