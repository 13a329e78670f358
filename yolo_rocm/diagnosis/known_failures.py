"""Known failures, and how to find them in a log of any size and state."""

from __future__ import annotations

import codecs
import io
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import BinaryIO, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..utils.limited_files import read_yaml
from .crashes import last_crash

CHUNK: Final = 1 << 20
# A message can begin in one chunk and end in the next; no pattern reaches further than this.
OVERLAP: Final = 1 << 12
ANY_GFX: Final = "gfxNNNN"  # in a remedy: the target of the card
LEVELS: Final = ("cause", "symptom", "note")

_ANSI = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_LONGEST_LINE: Final = 300
# Progress bars rewrite their line: each state of it begins like a line, and is none that an editor would count.
_REWRITTEN: Final = b"\x1e\n"


class Signature(BaseModel):
    """What one failure looks like, why it happens and what to do; see the head of `known_failures.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]+$")
    level: Literal["cause", "symptom", "note"]
    pattern: str = Field(min_length=4)
    contains: tuple[str, ...] = Field(min_length=1)
    where: str
    cause: str = Field(min_length=20)
    remedy: str = Field(min_length=10)
    confidence: str
    sources: tuple[str, ...] = Field(min_length=1)
    samples: tuple[str, ...] = Field(min_length=1)
    auto_match: bool = True

    def search(self, text: bytes) -> re.Match[bytes] | None:
        """Return the first occurrence in a piece of a log."""
        if not any(word in text for word in self._words):
            return None
        return self._compiled.search(text)

    @cached_property
    def _compiled(self) -> re.Pattern[bytes]:
        return re.compile(self.pattern.encode(), re.MULTILINE)

    @cached_property
    def _words(self) -> tuple[bytes, ...]:
        return tuple(word.encode() for word in self.contains)


@dataclass(frozen=True)
class FailureMatch:
    """A known failure found in a log.

    Attributes:
        signature: What is known about it.
        line: Number of the line it was first seen in.
        text: That line, shortened.
        gfx: The card's target, where the message names it.
    """

    signature: Signature
    line: int
    text: str
    gfx: str | None = None

    def remedy(self, gfx: str | None = None) -> str:
        """Return what to do, with the card's target in it where that is known.

        Args:
            gfx: The target of the card at hand; one that the message itself names goes first.
        """
        return self.signature.remedy.replace(ANY_GFX, self.gfx or gfx or ANY_GFX)


@dataclass(frozen=True)
class LogError:
    """The last error in a log, known or not: the number of its line, and the line, shortened."""

    line: int
    text: str


@dataclass(frozen=True)
class LogReading:
    """What a log shows: known failures, most specific first, and its last error."""

    matches: tuple[FailureMatch, ...]
    last_error: LogError | None

    @property
    def explained(self) -> bool:
        """Whether a known failure is in it; notes explain none."""
        return any(match.signature.level != "note" for match in self.matches)


@cache
def signatures() -> tuple[Signature, ...]:
    """Return everything known, most specific first."""
    entries = map(Signature.model_validate, read_yaml(Path(__file__).with_name("known_failures.yaml")))
    return tuple(sorted(entries, key=lambda entry: LEVELS.index(entry.level)))


def by_id(name: str) -> Signature:
    """Return one known failure by its id."""
    return next(signature for signature in signatures() if signature.id == name)


def examine_log(stream: BinaryIO) -> LogReading:
    """Return the known failures in a log, each where it was first seen, and its last error.

    The log is read piece by piece, in any encoding; what is no text does no harm.
    """
    waiting = [signature for signature in signatures() if signature.auto_match]
    found: list[FailureMatch] = []
    last: LogError | None = None
    lines_before = 0
    for piece, fresh in _pieces(stream):
        crash = last_crash(piece)
        # At the very beginning of a later piece half a line looks like a whole one; the piece before had all of it.
        if crash is not None and crash.lastgroup and (crash.start() or not lines_before):
            start = crash.start(crash.lastgroup)
            last = LogError(lines_before + _lines(piece, start) + 1, _line_at(piece, start))
        for signature in list(waiting):
            seen = signature.search(piece)
            if seen is not None:
                line = lines_before + _lines(piece, seen.start()) + 1
                gfx = (seen.groupdict().get("gfx") or b"").decode() or None
                found.append(FailureMatch(signature, line, _line_at(piece, seen.start()), gfx))
                waiting.remove(signature)
        lines_before += _lines(piece, fresh)
    order = {signature.id: number for number, signature in enumerate(signatures())}
    return LogReading(tuple(sorted(found, key=lambda match: order[match.signature.id])), last)


def read_text(text: str) -> tuple[FailureMatch, ...]:
    """Return the known failures in a text, most specific first."""
    return examine_log(io.BytesIO(text.encode("utf-8", errors="replace"))).matches


def explain(error: BaseException) -> FailureMatch | None:
    """Return the most specific known failure that an exception and its traceback show; notes explain no failure."""
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return next((match for match in read_text(told) if match.signature.level != "note"), None)


def _pieces(stream: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield overlapping pieces of a log as UTF-8 without colours, and where in each the next one begins."""
    decoder: codecs.IncrementalDecoder | None = None
    kept = b""
    first = True
    while True:
        raw = stream.read(CHUNK)
        if first and raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")  # what PowerShell's `>` writes
        first = False
        fresh = raw if decoder is None else decoder.decode(raw, final=not raw).encode("utf-8", errors="replace")
        if b"\x1b" in fresh:
            fresh = _ANSI.sub(b"", fresh)
        piece = kept + fresh.replace(b"\r\n", b"\n").replace(b"\r", _REWRITTEN)
        if not raw:
            if piece:
                yield piece, len(piece)
            return
        following = max(0, len(piece) - OVERLAP)
        yield piece, following
        kept = piece[following:]


def _lines(piece: bytes, end: int) -> int:
    """Count lines as an editor does."""
    return piece.count(b"\n", 0, end) - piece.count(_REWRITTEN, 0, end)


def _line_at(piece: bytes, position: int) -> str:
    start = piece.rfind(b"\n", 0, position) + 1
    start = max(start, position - _LONGEST_LINE // 2)
    end = piece.find(b"\n", position)
    end = min(len(piece) if end < 0 else end, start + _LONGEST_LINE)
    text = piece[start:end].decode("utf-8", errors="replace")
    return "".join(char if char.isprintable() else " " for char in text).strip()
