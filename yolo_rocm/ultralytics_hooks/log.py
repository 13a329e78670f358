"""Words for the user, where the user of a run looks: Ultralytics' own logger and progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

PREFIX: Final = "ROCm: "


def say(message: str, warning: bool = False) -> None:
    """Log one line where the user of a run looks: Ultralytics' own logger."""
    from ultralytics.utils import LOGGER, colorstr

    (LOGGER.warning if warning else LOGGER.info)(f"{colorstr(PREFIX)}{message}")


def say_diagnosis(error: BaseException) -> None:
    """Name a failure that is known, with its cause and remedy. The error itself is the caller's to raise again."""
    with suppress(Exception):  # whatever goes wrong here must not take the place of the error
        from ..diagnosis.knowledge import explain

        match = explain(error)
        if match is None:
            return
        known = match.signature
        say(f"this failure is known as {known.id}. {known.cause}", warning=True)
        say(f"what to do: {match.remedy()} (known from {' '.join(known.sources)})", warning=True)


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show Ultralytics' own progress bar; it appears with the first call of (done, all)."""
    from ultralytics.utils import TQDM

    bars: list[Any] = []

    def show(done: int, total: int) -> None:
        if not bars:
            bars.append(TQDM(total=total, desc=f"{PREFIX}{title}"))
        bars[0].update(1)

    try:
        yield show
    finally:
        for bar in bars:
            bar.close()
