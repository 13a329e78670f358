"""Settings that are on, off, or left to a measurement or the card."""

from __future__ import annotations

from enum import Enum


class Switch(str, Enum):
    """A setting of a preset. Each is its own word: in files, and where a user reads it."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"

    def __str__(self) -> str:
        """Return the word, on every Python alike."""
        return self.value

    __format__ = str.__format__  # type: ignore[assignment]  # of Python 3.10 as of later ones
