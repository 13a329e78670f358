"""What is logged of ours, by the ids of the lines: words may change, and one test of a room holds them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from yolo_rocm.ultralytics_hooks.log import PREFIX
from yolo_rocm.utils.log_lines import NAME


class Events(logging.Handler):
    """Keeps what has an id, of Ultralytics' logger and of the package's own.

    Attributes:
        ids: The ids, in the order of the lines.
        lines: The words of each line, without prefix and colours.
        warnings: The ids of those that are warnings.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.lines: list[str] = []
        self.warnings: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        event = getattr(record, "event", None)
        if event is not None:
            self.ids.append(event)
            self.lines.append(re.sub(r"\x1b\[\d*m", "", record.getMessage()).split(PREFIX, 1)[-1])
            if record.levelno >= logging.WARNING:
                self.warnings.add(event)

    def of(self, event: str) -> list[str]:
        """Return the lines with an id."""
        return [line for each, line in zip(self.ids, self.lines, strict=True) if each == event]

    def clear(self) -> None:
        """Forget what was logged."""
        for kept in (self.ids, self.lines, self.warnings):
            kept.clear()


@pytest.fixture
def events() -> Iterator[Events]:
    """What is logged of ours while a test runs."""
    from ultralytics.utils import LOGGER

    kept = Events()
    loggers = (LOGGER, logging.getLogger(NAME))
    for logger in loggers:
        logger.addHandler(kept)
    yield kept
    for logger in loggers:
        logger.removeHandler(kept)
