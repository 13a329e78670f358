"""What the package logs, shown to people who have set up no logging."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

NAME: Final = "yolo_rocm"


def log(event: str, message: str, *values: object, level: int = logging.WARNING) -> None:
    """Log a line of the package: a room below Ultralytics knows no other logger.

    Args:
        event: The id of the line, on its record as `event`: words may change, ids stay.
        message: The line, with places for the values as `logging` has them.
        values: The values.
        level: As `logging` counts.
    """
    logging.getLogger(NAME).log(level, message, *values, extra={"event": event}, stacklevel=2)


class _Lines(logging.Handler):
    """Shows what no other handler gets. Of several that are there at a time, the newest does."""

    def __init__(self, show: Callable[[str, str, bool], None], raised: bool) -> None:
        super().__init__(logging.INFO)
        self._show, self.raised = show, raised

    def emit(self, record: logging.LogRecord) -> None:
        """Show one line."""
        logger = logging.getLogger(NAME)
        others = [each for each in (*logger.handlers, *logging.getLogger().handlers) if not isinstance(each, _Lines)]
        if not others and _shown(logger)[-1] is self:
            self._show(getattr(record, "event", record.name), record.getMessage(), record.levelno >= logging.WARNING)


def _shown(logger: logging.Logger) -> list[_Lines]:
    return [each for each in logger.handlers if isinstance(each, _Lines)]


@contextmanager
def log_lines(show: Callable[[str, str, bool], None]) -> Iterator[None]:
    """Show what the package logs, from INFO on, while the context is open; users' own handlers go first.

    Args:
        show: Called with the id of a line, its words, and whether it is a warning.
    """
    logger = logging.getLogger(NAME)
    lines = _Lines(show, raised=logger.level == logging.NOTSET or any(each.raised for each in _shown(logger)))
    if lines.raised:
        logger.setLevel(logging.INFO)
    logger.addHandler(lines)
    try:
        yield
    finally:
        logger.removeHandler(lines)
        if lines.raised and not _shown(logger):
            logger.setLevel(logging.NOTSET)
