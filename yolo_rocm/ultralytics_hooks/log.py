"""Words for the user, where the user of a run looks: Ultralytics' own logger and progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from ..process_group import is_first_to
from .distributed import reports

PREFIX: Final = "ROCm: "


def say(message: str, warning: bool = False) -> None:
    """Log one line where the user of a run looks: Ultralytics' own logger."""
    from ultralytics.utils import LOGGER, colorstr

    (LOGGER.warning if warning else LOGGER.info)(f"{colorstr(PREFIX)}{message}")


def say_diagnosis(error: BaseException) -> None:
    """Name a failure that is known, with its cause and remedy. The error itself is the caller's to raise again."""
    with suppress(Exception):  # whatever goes wrong here must not take the place of the error
        from ultralytics.utils import LOGGER, colorstr

        from ..diagnosis.knowledge import explain

        match = explain(error)
        # Of the ranks of one training, which all fail when one does, only the first to fail says why.
        if match is None or not is_first_to("diagnosis"):
            return
        known = match.signature
        # Ultralytics keeps every rank but 0 silent below errors.
        log = LOGGER.warning if reports() else LOGGER.error
        log(f"{colorstr(PREFIX)}this failure is known as {known.id}. {known.cause}")
        log(f"{colorstr(PREFIX)}what to do: {match.remedy()} (known from {' '.join(known.sources)})")


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show Ultralytics' own progress bar; it appears with the first call of (done, all)."""
    from ultralytics.utils import TQDM

    bars: list[Any] = []

    def show(done: int, total: int) -> None:
        if not reports():
            return
        if not bars:
            bars.append(TQDM(total=total, desc=f"{PREFIX}{title}"))
        bars[0].update(1)

    try:
        yield show
    finally:
        for bar in bars:
            bar.close()
