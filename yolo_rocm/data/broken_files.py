"""Files that could not be read and whose place another sample took: each is named once, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .policy import Observer
    from .reader import Trace

_NAMED: Final = 5  # of those that are new at one time; the rest is counted


class BrokenFiles:
    """Those of some loaders.

    Attributes:
        counts: How often each was asked for.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def take(self, traces: Iterable[Trace]) -> list[str]:
        """Take the files out of traces, and return a line for each that has not been named, and a count of the rest."""
        lines = []
        for trace in traces:
            for name, reason in trace.broken:
                if not self.counts[name]:
                    lines.append(f"{name} cannot be read, another sample took its place: {reason}")
                self.counts[name] += 1
            trace.broken.clear()
        more = len(lines) - _NAMED
        return lines if more <= 0 else [*lines[:_NAMED], f"{more} more files cannot be read"]


def naming(tell: Callable[[str], object]) -> Observer:
    """Return an observer that names them to the user, for batches that no training counts."""
    files = BrokenFiles()

    def observe(kind: str, trace: Trace, asked: float, got: float) -> None:
        for line in files.take([trace]):
            tell(line)

    return observe
