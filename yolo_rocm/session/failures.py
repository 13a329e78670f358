"""What the known failures say about an error: its name, cause and remedy, and whether it means used up memory."""

from __future__ import annotations

from contextlib import suppress

from ..diagnosis import known_failures
from ..ultralytics_hooks import ranks
from ..ultralytics_hooks.log import say_from_any_rank
from ..utils.process_group import is_first_to


def say_diagnosis(error: BaseException) -> None:
    """Name a failure that is known, with its cause and remedy. The error itself is the caller's to raise again."""
    with suppress(Exception):  # whatever goes wrong here must not take the place of the error
        match = known_failures.explain(error)
        # Of the ranks of one training, which all fail when one does, only the first to fail says why.
        if match is None or not is_first_to("diagnosis"):
            return
        known = match.signature
        say_from_any_rank("failure.known", f"this failure is known as {known.id}. {known.cause}")
        say_from_any_rank("failure.remedy", f"what to do: {match.remedy()} (known from {' '.join(known.sources)})")


def is_lost_rank(error: BaseException) -> bool:
    """Return whether an error of a rank only says that another one has gone."""
    if ranks.place_of_rank() is None:
        return False
    return known_failures.by_id("lost-rank").search(str(error).encode(errors="replace")) is not None


def says_out_of_memory(text: str) -> bool:
    """Return whether an error message is one that AMD's libraries give when the GPU's memory is used up."""
    return known_failures.by_id("oom").search(text.encode(errors="replace")) is not None
