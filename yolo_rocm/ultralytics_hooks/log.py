"""Words for the user, where the user of a run looks: Ultralytics' own logger and progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..utils.console import is_terminal
from .ranks import is_main_rank

PREFIX: Final = "yolo-rocm: "


def say(event: str, message: str, warning: bool = False) -> None:
    """Log one line where the user of a run looks: Ultralytics' own logger.

    Args:
        event: The id of the line, on its record as `event`: words may change, ids stay.
        message: The line.
        warning: Log it as a warning.
    """
    from ultralytics.utils import LOGGER, colorstr

    (LOGGER.warning if warning else LOGGER.info)(f"{colorstr(PREFIX)}{message}", extra={"event": event})


def say_from_any_rank(event: str, message: str) -> None:
    """Log one warning from whichever rank has it to say; Ultralytics keeps every rank but 0 silent below errors."""
    from ultralytics.utils import LOGGER, colorstr

    (LOGGER.warning if is_main_rank() else LOGGER.error)(f"{colorstr(PREFIX)}{message}", extra={"event": event})


@contextmanager
def progress_bar(title: str, limit_s: float | None = None) -> Iterator[Callable[[int, int], None]]:
    """Show how far something is: Ultralytics' own bar on a terminal, lines of its logger elsewhere; nothing if short.

    Neither draws by itself: what is going on is being measured.

    Args:
        title: A few words.
        limit_s: Seconds after which the work ends by itself.

    Yields:
        A function to be called with (done, all).
    """
    from ultralytics.utils import TQDM

    from ..utils.progress import Pace

    pace, on_terminal = Pace(limit_s), is_terminal(sys.stdout)
    bars: list[Any] = []

    def show(done: int, total: int) -> None:
        pace.reached(done, total)
        if not is_main_rank() or not pace.is_long:
            return
        if not on_terminal:
            if pace.line_due():
                say("progress", f"{title}: {pace.words()}")
            return
        if not bars:
            bars.append(TQDM(total=total, desc=f"{PREFIX}{title}", initial=done))
        else:
            bars[0].update(done - bars[0].n)

    try:
        yield show
    finally:
        for bar in bars:
            bar.close()
