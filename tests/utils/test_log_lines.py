"""What the package logs is shown once, where nothing else shows it."""

from __future__ import annotations

import logging

import pytest

from yolo_rocm.utils.log_lines import NAME, log_lines

pytestmark = pytest.mark.once
LOG = logging.getLogger(NAME)


@pytest.fixture
def no_logging(monkeypatch):
    """Return a function that takes away the handlers of the test runner, which come after fixtures: a user has none."""

    def take_away():
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        monkeypatch.setattr(LOG, "handlers", [])

    return take_away


def test_lines_are_shown_while_the_context_is_open(no_logging):
    no_logging()
    shown = []
    with log_lines(lambda event, text, warning: shown.append((text, warning))):
        LOG.info("kernels are compiled for %s", "gfx1010")
        logging.getLogger(f"{NAME}.data").warning("careful")
        LOG.debug("not for people")
    LOG.info("later")
    assert shown == [("kernels are compiled for gfx1010", False), ("careful", True)]
    assert (LOG.handlers, LOG.level) == ([], logging.NOTSET)


def test_of_several_contexts_the_newest_shows_a_line_once(no_logging):
    no_logging()
    outer, inner = [], []
    first, second = log_lines(lambda *line: outer.append(line)), log_lines(lambda *line: inner.append(line))
    first.__enter__()
    second.__enter__()
    LOG.info("both")
    first.__exit__(None, None, None)  # threads end in any order
    LOG.info("second")
    second.__exit__(None, None, None)
    assert ([text for _, text, _ in outer], [text for _, text, _ in inner]) == ([], ["both", "second"])
    assert LOG.level == logging.NOTSET


@pytest.mark.parametrize("logger", ["", NAME])
def test_handlers_of_the_user_get_it_alone(logger, no_logging):
    no_logging()
    records, shown = [], []
    own = logging.Handler()
    own.emit = records.append
    logging.getLogger(logger).addHandler(own)
    with log_lines(lambda *line: shown.append(line)):
        LOG.info("once")
    assert ([record.getMessage() for record in records], shown) == (["once"], [])
